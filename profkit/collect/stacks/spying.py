"""The parent process's side: py-spy reads the program's stacks when the program asks for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from profkit.collect.program.clocks import time
from profkit.collect.stacks.reading import read_samples
from profkit.collect.stacks.requests import REQUEST_FILE, StackRequest, read_request
from profkit.run.directory import STACKS_FILE, StackSamples, save
from profkit.source.user_code import UserFiles

_RATE_PER_CPU, _LEAST_RATE, _MOST_RATE = 40, 50, 200
"""Samples a second. One takes 0.25 ms of a CPU: so many take a hundredth of the machine, more of one with a single
CPU. More than the most tells little more in four seconds."""
_WITH_WORKERS = 2
"""Each sample reads all processes, one after the other: with workers there are this many times fewer."""
_LOOK_S = 0.05
_MOST_S = 40
"""A step may take minutes: then it is sampled no longer than this, and the samples are not used."""
_ENDS_S = 10
"""py-spy writes its file within a second."""
_MISSING = "py-spy is not installed (pip install py-spy): how long Python lines take was not sampled"
_ELSEWHERE = "stacks are sampled on Linux only"
_MOST_MESSAGE = 200
"""Characters of py-spy's own words: its errors are a sentence or two."""


class StackSampling:
    """While entered, has the program sampled that records into ``directory``; then writes the samples there. Code in
    ``roots`` is the program's own. Nothing that happens here reaches the program or its exit status."""

    def __init__(self, directory: Path, roots: tuple[Path, ...]) -> None:
        self._directory, self._roots = directory, roots
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._spy: _Spy | None = None
        self._spied: list[_Spy] = []
        self._reason = ""
        self._program = find_py_spy()

    @property
    def is_possible(self) -> bool:
        return self._program is not None

    def __enter__(self) -> StackSampling:
        self._files = tempfile.TemporaryDirectory(prefix="profkit-stacks-", ignore_cleanup_errors=True)
        if self._program is not None:
            self._thread = threading.Thread(target=self._watch, name="profkit-stacks", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(Exception):  # the recording is worth more than its samples
            self._save()
        self._files.cleanup()

    def _watch(self) -> None:
        path, request = self._directory / REQUEST_FILE, None
        seen: tuple[int, ...] = ()
        with suppress(Exception):
            while not self._over.wait(_LOOK_S):
                if (version := _version_of(path)) != seen:  # reading it anew at each look took 0.6 ms
                    seen, request = version, read_request(self._directory)
                self._look(request)
        if self._spy is not None:
            self._spy.stop()

    def _look(self, request: StackRequest | None) -> None:
        if request is None:
            return
        spy = self._spy
        if (spy is None or spy.request.begun_ns != request.begun_ns) and not request.is_over:
            if spy is not None:
                spy.stop()
            path = Path(self._files.name) / f"{len(self._spied)}.json"
            self._spy = _Spy(str(self._program), request, path)
            self._spied.append(self._spy)
        elif spy is not None and (request.is_over or spy.lasts_too_long):
            spy.stop()

    def _save(self) -> None:
        request = read_request(self._directory)
        with suppress(OSError):
            (self._directory / REQUEST_FILE).unlink(missing_ok=True)
        if self._program is None:
            save(self._directory, STACKS_FILE, StackSamples(_MISSING if sys.platform == "linux" else _ELSEWHERE))
        elif request is not None:
            spies = [spy for spy in self._spied if spy.request.begun_ns == request.begun_ns]
            save(self._directory, STACKS_FILE, self._read(request, spies[0]) if spies else StackSamples())

    def _read(self, request: StackRequest, spy: _Spy) -> StackSamples:
        if (message := spy.failure) is not None:
            return StackSamples(f"py-spy could not read the program's stacks: {message}")
        is_user = UserFiles(self._roots)
        return read_samples(spy.path, request, spy.started_ns, spy.stopped_ns, int(1e9 / spy.rate), is_user)


class _Spy:
    """One run of py-spy. Its times begin when it does, on the clock of `time.perf_counter_ns`."""

    def __init__(self, program: str, request: StackRequest, path: Path) -> None:
        self.request, self.path = request, path
        self.rate = choose_rate(len(os.sched_getaffinity(0)), request.has_workers)
        options = ["--nonblocking", "--idle", "--threads", "--full-filenames", f"--rate={self.rate}"]
        if request.has_workers:
            options.append("--subprocesses")
        target = ["--format=chrometrace", f"--output={path}", f"--pid={request.process}"]
        self._errors = path.with_suffix(".txt").open("wb")
        self.started_ns, self.stopped_ns = time.perf_counter_ns(), 0
        self._process = subprocess.Popen(  # noqa: S603  # found beside this Python, or on the path
            [program, "record", *options, *target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # an interrupt at the terminal is the program's
        )

    @property
    def lasts_too_long(self) -> bool:
        return time.perf_counter_ns() - self.started_ns > _MOST_S * 1e9

    def stop(self) -> None:
        """Let py-spy write what it has."""
        if self.stopped_ns:
            return
        self.stopped_ns = time.perf_counter_ns()
        with suppress(OSError):
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    @property
    def failure(self) -> str | None:
        """What py-spy says if it wrote nothing."""
        if self.path.is_file():
            return None
        lines = self.path.with_suffix(".txt").read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        return (said[0] if said else f"it ended with status {self._process.returncode}")[:_MOST_MESSAGE]


def _version_of(path: Path) -> tuple[int, ...]:
    """What differs once the file was replaced by another; nothing if there is none."""
    with suppress(OSError):
        found = os.stat(path)  # twenty times a second, as long as the program runs
        return found.st_ino, found.st_mtime_ns, found.st_size
    return ()


def choose_rate(cpus: int, has_workers: bool) -> int:
    """How many samples a second cost the program a hundredth at most."""
    rate = max(_LEAST_RATE, min(_RATE_PER_CPU * cpus, _MOST_RATE))
    return rate // _WITH_WORKERS if has_workers else rate


def find_py_spy() -> str | None:
    """The program's path, beside this Python or else on the search path; None if it is not installed."""
    if sys.platform != "linux":
        return None
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
