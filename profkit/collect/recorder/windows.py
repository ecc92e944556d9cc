"""Further recordings of a program that runs, each asked for with the signal SIGUSR1.

Nothing of profkit's stays in a program once its recording is over, but for the signal's handler, which only sets a
flag. Soon after, between two bytecodes of the main thread, the signals of steps are listened to again; at the next end
of a step the window begins.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from torch.optim import optimizer

from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.program.frames import forget_locals, walk_up
from profkit.collect.program.guard import Guard
from profkit.collect.program.interrupts import MainThreadCall
from profkit.collect.sessions.session import is_capturing
from profkit.plan import EXPLICIT
from profkit.run import RUN_FILE, load_run, save

_SIGNAL = getattr(signal, "SIGUSR1", None)
_SCHEDULER = "SLURM_JOB_ID"
"""Under this scheduler the signal is the usual notice of an end that is near, for which programs set handlers of their
own later, some of them only where none is set: it is left alone."""
_ANNOUNCED_LATE = "the program announced a step of its own when others had been recorded, and too few after that"


class WindowRequests:
    """``begin`` is called at the end of a step, with the signal that announced it, for each window asked for; never
    while ``is_busy``. ``signal_name`` is the one to listen to, where it is known; one ``is_wanted`` until it begins."""

    def __init__(self, guard: Guard, is_busy: Callable[[], bool], begin: Callable[[str], None]) -> None:
        self.signal_name: str | None = None
        self._guard, self._is_busy, self._begin = guard, is_busy, begin
        self.is_wanted = self._is_installed = self._is_listening = False
        self._call = MainThreadCall(lambda: guard(self._listen))
        self._signals = StepSignals(self, guard)
        self.thread: int | None = threading.get_ident()
        self._is_waking = False

    def install(self) -> None:
        """Set the handler, from the main thread only and where the signal has none and is not ignored."""
        if _is_free() and threading.current_thread() is threading.main_thread():
            signal.signal(_SIGNAL, self._on_signal)  # type: ignore[arg-type]  # it is free only where it exists
            self._is_installed = True

    def remove(self) -> None:
        """Take the handler away, unless the program has set its own meanwhile, and listen no more."""
        self.is_wanted = False
        self._stop_listening()
        if self._is_installed and _SIGNAL is not None:
            self._is_installed = False
            with suppress(ValueError):  # on another thread
                if signal.getsignal(_SIGNAL) == self._on_signal:
                    signal.signal(_SIGNAL, signal.SIG_DFL)

    def want(self) -> None:
        """Ask for a window, as the signal does."""
        self.is_wanted = True
        if not self._is_busy():
            self._call.request()

    def look(self) -> None:
        """A recording is over: a window may have been asked for meanwhile."""
        if self.is_wanted:
            self._call.request()

    def give(self, name: str) -> None:
        """The signal ``name`` came from the program itself, while nothing is recorded."""
        if self._is_listening:
            self._signals.give(name)

    def wake(self) -> None:
        """Interrupt the main thread, whatever it waits for, so that calls that are pending come to run; not where the
        program handles the signal itself by now."""
        if self._is_installed and _SIGNAL is not None and signal.getsignal(_SIGNAL) == self._on_signal:
            self._is_waking = True
            signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a handler's signature
        is_waking, self._is_waking = self._is_waking, False
        if not is_waking:
            self.want()

    def _listen(self) -> None:
        if not self.is_wanted or self._is_listening or self._is_busy():
            return
        if _calls_hooks(sys._getframe()):  # none must be added meanwhile
            self._call.request()
            return
        self._is_listening = True
        self._signals.install(has_begun=self.signal_name is not None, chosen=self.signal_name)

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._signals.remove()

    def hears(self) -> bool:
        return not self._is_busy() and threading.get_ident() == self.thread and not is_capturing()

    def misses(self, name: str) -> bool:  # noqa: ARG002  # of any kind
        return threading.get_ident() != self.thread

    def passes_by(self) -> bool:
        return False

    def is_committed(self) -> bool:
        return False

    def outdone(self) -> None:
        """Whatever comes first begins the window."""

    def end_step(self, is_first: bool) -> None:  # noqa: ARG002  # of any kind
        self.is_wanted = False
        name = self._signals.name
        self._stop_listening()
        if name is not None:
            self._begin(name)


def window_directory(first: Path, window: int) -> Path:
    """A directory beside that of the first recording, which is free."""
    name = f"{first.name}-window{window}"
    path, again = first.with_name(name), 1
    while path.exists():
        again += 1
        path = first.with_name(f"{name}-{again}")
    return path


def note_window(first: Path, window: Path) -> None:
    """The first recording's file names the later ones."""
    run = load_run(first)
    save(first, RUN_FILE, replace(run, windows=(*run.windows, window.name)))


def note_outdone(signal: str, directory: Path) -> None:
    """What was recorded there came too early, before ``signal``; it is what there is, until something else takes its
    place."""
    run = load_run(directory)
    if signal == EXPLICIT:
        save(directory, RUN_FILE, replace(run, notes=(*run.notes, _ANNOUNCED_LATE)))
    else:
        save(directory, RUN_FILE, replace(run, was_outdone=True))


def complete(directories: Sequence[Path], exit_status: int | None, was_stopped: bool = False) -> None:
    """Say in recordings that ended before the program did how it ended, and whether because it was recorded."""
    for directory in directories:
        run = load_run(directory)
        if run.exit_status is None and exit_status is not None:
            save(directory, RUN_FILE, replace(run, exit_status=exit_status, was_stopped=was_stopped))


def _is_free() -> bool:
    """Whether the signal does what it does by default. A handler in C, such as faulthandler's, Python does not know of;
    Linux says whether there is one."""
    if _SIGNAL is None or signal.getsignal(_SIGNAL) is not signal.SIG_DFL or _SCHEDULER in os.environ:
        return False
    with suppress(OSError, IndexError, ValueError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return not int(status.split("SigCgt:")[1].split()[0], 16) >> (_SIGNAL - 1) & 1
    return True


def _calls_hooks(frame: FrameType | None) -> bool:
    """Whether an optimizer calls its hooks: whatever runs inside its own code but for the step itself, as that may call
    a closure which trains for minutes. To ask again and again until it is over would slow it down several times."""
    callee = None
    for caller in walk_up(frame):
        if caller.f_code.co_filename == optimizer.__file__:
            step = caller.f_locals.get("func")  # what PyTorch calls the step that it wraps
            forget_locals(caller)
            if callee is None or callee is not getattr(step, "__code__", None):
                return True
        callee = caller.f_code
    return False
