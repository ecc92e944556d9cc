"""The parent process of a recorded program: it starts the program, waits, and reports how it ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from profkit.collect.ranks.identity import RankWatch
from profkit.collect.stacks.spying import StackSampling
from profkit.run.directory import KILLED, PROFKIT_FAILED, RUN_FILE, OutOfMemory, fixed, load_run, save

_CHILD = "profkit.collect.launch.entry"
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1")
_LETHAL = ("SIGTERM", "SIGHUP")
"""Forwarded even if the program does not handle them."""
_AWAKE_MS = 1000
"""A scheduler waits for ten seconds and more between SIGTERM and SIGKILL."""
_SIGKILL = 9
"""`signal.SIGKILL`, which Python on Windows lacks."""
_CUT_SHORT = (
    "the program ended without Python's own exit (os._exit or a signal): the last part of the recording is missing"
)
_KILL_COUNTS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))


def launch_script(
    target: str, arguments: Sequence[str], directory: Path, *, module: bool = False, **options: str | int | bool
) -> int:
    """Run and record a script, or a module, into ``directory``, and return its exit status.

    ``options`` are those of `profkit.collect.launch.script`. The program has the caller's standard streams. Interrupts
    at the terminal reach the program, which decides what to do; a second one is raised here. Other signals that would
    end this process or request a window are forwarded. A program ended by a signal has the status that shells report
    (128 + number).
    """
    directory = fixed(directory)
    sampling = StackSampling(directory, () if module else (fixed(Path(target)).parent,))
    given = _as_options({"module": module, "samples_stacks": sampling.is_possible, **options})
    command = [sys.executable, "-m", _CHILD, f"--directory={directory}", *given, "--", target, *arguments]
    killed_before = count_kills()
    with sampling:
        returned = _run(command)
    status = _as_shells_say(returned)
    was_killed = returned == -_SIGKILL and count_kills() > killed_before
    _complete(directory, status, OutOfMemory(message=KILLED, ended=True) if was_killed else None)
    return status


def launch_ranks(
    processes: int, target: str, arguments: Sequence[str], directory: Path, *, module: bool = False, **options: Any
) -> int:
    """Let torchrun run a script, or a module, in that many processes on this host, each recorded into its own folder in
    ``directory``. Return torchrun's exit status. For the rest see `launch_script`."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "profkit"]
    what = ["-m", target, "--"] if module else ["--", target]
    command = [
        sys.executable,
        *torchrun,
        "record",
        f"--output={fixed(directory)}",
        *_as_options(options),
        *what,
        *arguments,
    ]
    return _as_shells_say(_run(command))


def run_unrecorded(target: str, arguments: Sequence[str], *, module: bool = False) -> int:
    """Run a script, or a module, as Python itself would, and return its exit status."""
    return _as_shells_say(_run([sys.executable, *(["-m"] if module else []), target, *arguments]))


def _run(command: Sequence[str]) -> int:
    """Run the command and return what `subprocess.Popen.wait` returns."""
    with _Forwarding() as forwarding, subprocess.Popen(command) as process:  # noqa: S603  # what the user asked to run
        forwarding.to = process
        try:
            return _wait(process)
        except KeyboardInterrupt:
            return _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """`subprocess.Popen.wait`, which comes back to Python every second. A signal that arrives just before the system's
    call begins, or on another thread, does not interrupt it: its handler, which forwards it, would never run."""
    ended = _handle_of(process.pid)
    while ended is None:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_AWAKE_MS / 1000)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        while not poll.poll(_AWAKE_MS):
            pass
    finally:
        os.close(ended)
    return process.wait()


def _handle_of(process: int) -> int | None:
    """What can be read once the process has ended. None on macOS, and on Linux before 5.3."""
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):
        return None


def _as_shells_say(returned: int) -> int:
    return returned if returned >= 0 else 128 - returned


def count_kills() -> int:
    """How many processes the system has killed for lack of memory: in this container if it reports that, else on the
    machine; 0 if neither does."""
    for file in _KILL_COUNTS:
        with suppress(OSError, ValueError, StopIteration):
            lines = map(str.split, file.read_text(encoding="ascii").splitlines())
            return next(int(count) for name, count in lines if name == "oom_kill")
    return 0


class _Forwarding:
    """While entered, forwards to the program the signals that would just end this process."""

    def __init__(self) -> None:
        self.to: Any = None
        self._before: list[signal.Signals] = []

    def __enter__(self) -> _Forwarding:
        if threading.current_thread() is threading.main_thread():
            present = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
            self._before = [number for number in present if signal.getsignal(number) is signal.SIG_DFL]
            for number in self._before:
                signal.signal(number, self._forward)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)

    def _forward(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a handler's signature
        name = signal.Signals(number).name
        if self.to is not None and (name in _LETHAL or _catches(self.to.pid, number)):
            self.to.send_signal(number)
        else:
            with suppress(OSError):
                sys.stderr.write(f"profkit: {name}: the program does not handle it yet\n")


def _catches(process: int, number: int) -> bool:
    """Whether the process handles the signal, which would end it otherwise; True if the system does not report it."""
    with suppress(OSError, IndexError, ValueError):
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
        return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1)
    return True


def _as_options(values: Mapping[str, str | int | bool]) -> list[str]:
    given = {f"--{name.replace('_', '-')}": value for name, value in values.items() if value is not False}
    return [option if value is True else f"{option}={value}" for option, value in given.items()]


def _complete(directory: Path, status: int, failed: OutOfMemory | None) -> None:
    """Note how a process ended that could not note it itself, because of a signal or a library, or that ended otherwise
    after that, in a function for ``atexit``. If the note cannot be written, reading the recording will show why."""
    run = load_run(directory)
    if run.was_stopped or run.exit_status == status:
        return
    if run.exit_status is None:
        was_given_up = any(note.startswith(PROFKIT_FAILED) for note in run.notes)
        notes = run.notes if was_given_up else (*run.notes, _CUT_SHORT)
        identity = run.identity or RankWatch(directory).identity
        run = replace(run, identity=identity, notes=notes, out_of_memory=failed or run.out_of_memory)
    with suppress(OSError):
        save(directory, RUN_FILE, replace(run, exit_status=status))
        for window in map(directory.with_name, run.windows):
            save(window, RUN_FILE, replace(load_run(window), exit_status=status))
