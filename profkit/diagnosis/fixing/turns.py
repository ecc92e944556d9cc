"""One run of the program in a copy of its folder, and its recording there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from profkit.core.errors import ProfkitError
from profkit.diagnosis.fixing.trees import Tree, Written, copy_tree, snapshot, written_since
from profkit.trace.events import Float64s

_RESULT, _PARAMETERS, _OUTPUT, _ERRORS = "result.json", "parameters.npz", "stdout", "stderr"
"""Files of a run. The second is written beside the first, under this name."""
_LEAST_STEPS = 8
"""Fewer steps than these are no steady state: the whole run is timed instead."""
_WARM_UP = 3
"""Steps that do not count: lazy initialisation, cold caches, first touch of memory."""
_MOST_OUTSIDE = 0.5
"""If steps take less than half of the run, what happens outside of them decides how long the program takes."""
_MOST_ELSEWHERE = 0.05
"""Of the run's time: what PyTorch's idle threads use is far less, and a loader's worker far more."""
_CROWDED = 2
"""Threads for each CPU, of all programs: with one of its own for each, a program alone comes near one."""
_MOST_CROWDED = 0.1
"""Of the run's time, spent waiting for a processor: more than most changes win."""
_MOST_OUTPUT = 64 << 20
"""Characters of standard output that are compared; who prints more hardly reads it."""


class TooLong(ProfkitError):
    """A run did not end in the time it had."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: a script, relative to the tree's root, or a module; its arguments and its standard input."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    stdin: Path | None = None
    seed: int | None = None


class Seen(msgspec.Struct, frozen=True):
    """What the process says of itself (`profkit.collect.launch.turn`)."""

    run_ns: int = 0
    crowded_ns: int = 0
    """Of the run, how long the main thread waited for a busy processor; 0 where the system does not say."""
    idle_ns: int | None = None
    """How long the main thread neither computed nor waited for a busy processor: for files, a network, others."""
    step_ns: tuple[int, ...] = ()
    step_crowded_ns: tuple[int, ...] = ()
    computes_elsewhere_s: float = 0.0
    """Processor seconds of other threads and of children: such a program may be the one that keeps them busy."""
    graph_nodes: tuple[int, ...] = ()
    """How many backward nodes are alive after the fourth, the eighth, the sixteenth step and so on."""
    peak_bytes: int = 0
    device_peak_bytes: int = 0
    random_states: dict[str, str] = {}
    drawn: tuple[str, ...] = ()
    unseeded: tuple[str, ...] = ()
    """Lines of the program that made a generator without a seed."""
    files: tuple[str, ...] = ()
    optimizers: int = 0
    passes: int = 0
    """Backward passes."""
    losses: tuple[float | None, ...] = ()
    """Of the first ones; None for what has no number, or one of few bits."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``parameters`` are those of the optimizers, by the names ``start.N.…`` and ``end.N.…``."""

    status: int
    output: str
    errors: str
    seen: Seen
    written: Mapping[str, Written]
    parameters: Mapping[str, Float64s]
    one_thread: bool = False
    """PyTorch was told to compute in one thread."""
    by_slices: bool = False
    """It took turns with others of hundredths of a second (`run_by_slices`)."""

    @property
    def is_row_of_steps(self) -> bool:
        """Whether steps are most of the run."""
        ends = self.seen.step_ns
        return len(ends) >= _LEAST_STEPS and ends[-1] - ends[0] >= _MOST_OUTSIDE * self.seen.run_ns

    @property
    def is_alone(self) -> bool:
        """Whether others kept the processors busy for which it waited: it has next to no second thread or child."""
        return self.seen.computes_elsewhere_s <= _MOST_ELSEWHERE * self.seen.run_ns / 1e9

    @property
    def is_crowded(self) -> bool:
        """Whether it waited for processors, and other threads of its own hide how much of that is due to others."""
        return not self.is_alone and self.seen.crowded_ns > _MOST_CROWDED * self.seen.run_ns

    def step_s(self, without_waits: bool = False) -> float | None:
        """Seconds a step, evenly over the run without its beginning; None if there are too few steps. Waits for
        processors that others keep busy may be left out."""
        ends, waits = self.seen.step_ns, self.seen.step_crowded_ns
        if len(ends) < _LEAST_STEPS:
            return None
        waited = waits[-1] - waits[_WARM_UP - 1] if without_waits and len(waits) == len(ends) else 0
        return (ends[-1] - ends[_WARM_UP - 1] - waited) / (len(ends) - _WARM_UP) / 1e9

    def run_s(self, without_waits: bool = False) -> float:
        """Seconds from the import of PyTorch to the end, without the loading of other libraries."""
        return (self.seen.run_ns - (self.seen.crowded_ns if without_waits else 0)) / 1e9


@dataclass(frozen=True, slots=True)
class Stage:
    """Where copies are made and run: ``copy`` is the same path for each. With ``one_thread`` PyTorch computes in one,
    unless the program says otherwise."""

    tree: Tree
    program: Program
    folder: Path
    one_thread: bool = False

    @property
    def copy(self) -> Path:
        return self.folder / self.tree.root.name

    def run(self, changed: Mapping[Path, bytes], timeout_s: float) -> Run:
        """Run the program once, with these files changed. Raises `TooLong`."""
        copy_tree(self.tree, self.copy, changed)
        before = snapshot(self.copy)
        with self.turn(self.folder) as process:
            self.await_end(process, timeout_s)
        return self.seen(self.folder, process.returncode, before)

    def turn(self, place: Path, stopped: Path | None = None) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """The program begins in the copy that is there; what it says comes to ``place``."""
        for left in (place / _RESULT, place / _PARAMETERS):
            left.unlink(missing_ok=True)
        seed = [] if self.program.seed is None else [f"--seed={self.program.seed}"]
        stops = [] if stopped is None else [f"--stopped={stopped}"]
        return self._begun("turn", [f"--result={place / _RESULT}", *seed, *stops], place)

    def seen(self, place: Path, status: int, before: Mapping[Path, tuple[int, int]]) -> Run:
        """What a run that has ended left in ``place`` and in the copy, which was like ``before``."""
        result = place / _RESULT
        seen = msgspec.json.decode(result.read_bytes(), type=Seen) if result.exists() else Seen()
        written = written_since(self.copy, before)
        output, errors = _read(place / _OUTPUT), _read(place / _ERRORS)
        return Run(status, output, errors, seen, written, _load(result), self.one_thread)

    def try_out(self, child: str, options: list[str], timeout_s: float) -> tuple[int, str]:
        """Run a fresh copy in another of profkit's ways to run a program (`profkit.collect.launch`): its exit status,
        and what it wrote to standard error. Raises `TooLong`."""
        copy_tree(self.tree, self.copy, {})
        status, _, errors = self._call(child, options, timeout_s)
        return status, errors

    def record(self, directory: Path, changed: Mapping[Path, bytes], timeout_s: float) -> tuple[int, str]:
        """Record the program with these files changed into a run directory: its exit status, and what it wrote to
        standard error."""
        copy_tree(self.tree, self.copy, changed)
        status, _, errors = self._call("entry", [f"--directory={directory}"], timeout_s)
        return status, errors

    def _call(self, child: str, options: list[str], timeout_s: float) -> tuple[int, str, str]:
        with self._begun(child, options, self.folder) as process:
            self.await_end(process, timeout_s)
        return process.returncode, _read(self.folder / _OUTPUT), _read(self.folder / _ERRORS)

    @contextmanager
    def _begun(self, child: str, options: list[str], place: Path) -> Iterator[subprocess.Popen[bytes]]:
        """The process that runs the program in one of profkit's ways. In the end it is ended, with all it started."""
        module = ["--module"] if self.program.is_module else []
        working = self.copy / self.tree.working.relative_to(self.tree.root)
        script = os.path.relpath(self.copy / self.program.target, working)
        target = self.program.target if self.program.is_module else script
        command = [sys.executable, "-m", f"profkit.collect.launch.{child}", *options, *module, "--", target]
        given, out, err = self.program.stdin or Path(os.devnull), place / _OUTPUT, place / _ERRORS
        with out.open("wb") as stdout, err.open("wb") as stderr, given.open("rb") as stdin:
            process = subprocess.Popen(  # noqa: S603  # what the user asked to run
                [*command, *self.program.arguments],
                cwd=working,
                env=self._environment(working),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                _end(process)

    def await_end(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        """Until the process ends by itself. Raises `TooLong`."""
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.too_long(timeout_s) from None

    def too_long(self, timeout_s: float) -> TooLong:
        """What is raised of a run that has not ended after these seconds."""
        return TooLong(f"a run did not end within {timeout_s:.0f} s{_rivals(self._environment(self.copy))}")

    def _environment(self, working: Path) -> dict[str, str]:
        """This process's, with the entries of Python's path as absolute ones, into the copy where they lie in it. What
        a shell calls the working folder is that of the copy too: a program may write there by this name. Sets of
        strings have one order in all runs, or a vocabulary that is made of one would be another each time."""
        entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        moved = [self._moved(Path(entry).resolve()) for entry in entries]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1") if self.one_thread else {}
        named = {"PWD": str(working)} if "PWD" in os.environ else {}
        found = {"PYTHONPATH": os.pathsep.join(map(str, moved))} if moved else {}
        hashed = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
        return {**os.environ, **threads, **named, **found, **hashed}

    def _moved(self, path: Path) -> Path:
        inside = path.is_relative_to(self.tree.root)
        return self.copy / path.relative_to(self.tree.root) if inside else path

    def original(self, file: str) -> str:
        """The file that a file of the copy was copied from; any other as it is."""
        path, copy = Path(file), self.copy.resolve()
        return str(self.tree.root / path.relative_to(copy)) if path.is_relative_to(copy) else file


def _rivals(environment: Mapping[str, str]) -> str:
    """Who may have kept the program from ending in time: threads of PyTorch that wait for each other take far longer
    than their share of a crowded machine. It may have been told to use one already."""
    if not hasattr(os, "getloadavg"):
        return ""
    wanting, there = os.getloadavg()[0], os.cpu_count() or 1
    if wanting < _CROWDED * there:
        return ""
    single = "" if environment.get("OMP_NUM_THREADS") == "1" else ", or set OMP_NUM_THREADS=1"
    return f" (about {wanting:.0f} threads want {there} CPUs: wait until others are done{single})"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, if it still runs, and all that it started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        else:
            process.kill()
    process.wait()


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_OUTPUT)


def _load(result: Path) -> dict[str, Float64s]:
    file = result.with_name(_PARAMETERS)
    if not file.exists():
        return {}
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays.files}
