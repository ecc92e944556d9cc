"""Waiting for the next end of a step while nothing is recorded and nothing of profkit is left in the program.

Listening to the signals of steps begins between two bytecodes of the main thread, and ends with the next step.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from torch.optim import optimizer

from profkit.collect.boundaries.choice import SignalChoice, StepBoundary, Verdict
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.program.frames import forget_locals, walk_up
from profkit.collect.program.guard import Guard
from profkit.collect.program.interrupts import MainThreadCall
from profkit.collect.sessions.session import is_capturing


class NextBoundary:
    """Calls ``begin`` once for each boundary that ``is_wanted``, with its signal, and never while something else
    ``is_busy``. Only ``signal`` is listened to, or whatever comes first."""

    def __init__(
        self, guard: Guard, is_busy: Callable[[], bool], begin: Callable[[str], None], signal: str | None = None
    ) -> None:
        self.is_wanted = False
        self._guard, self._is_busy, self._begin = guard, is_busy, begin
        self._call = MainThreadCall(lambda: guard(self._listen))
        self._signal = signal
        self._thread: int | None = threading.get_ident()
        self._choice = SignalChoice()
        self._signals: StepSignals | None = None

    def want(self) -> None:
        """Listen as soon as nothing is busy; may be called from a signal handler."""
        self.is_wanted = True
        if not self._is_busy():
            self._call.request()

    def go_on(self, signal: str | None, thread: int | None) -> None:
        """Nothing is busy any more; steps ended by that ``signal``, on that ``thread``."""
        self._signal, self._thread = signal, thread
        if self.is_wanted:
            self._call.request()

    def take(self, boundary: StepBoundary) -> None:
        """A signal came, or the program announces the end of a step."""
        choice = self._choice
        if self._signals is None or not choice.counts(boundary, is_committed=False):
            return
        if self._is_busy() or boundary.thread != self._thread or is_capturing():
            return
        if choice.judge(boundary, is_committed=False) is not Verdict.NOTHING:
            self.is_wanted = False
            self._stop_listening()
            self._begin(boundary.signal)

    def remove(self) -> None:
        """Listen no more."""
        self.is_wanted = False
        self._stop_listening()

    def _listen(self) -> None:
        if not self.is_wanted or self._signals is not None or self._is_busy():
            return
        if _calls_hooks(sys._getframe()):  # adding one now would break the loop over them
            self._call.request()
            return
        self._choice = SignalChoice(self._signal, has_begun=self._signal is not None)
        self._signals = StepSignals(self.take, self._guard, self._signal)
        self._signals.install()

    def _stop_listening(self) -> None:
        signals, self._signals = self._signals, None
        if signals is not None:
            signals.remove()


def _calls_hooks(frame: FrameType | None) -> bool:
    """Whether an optimizer is calling its hooks: any of its own code but the step itself, which may call a closure that
    trains for minutes. Asking again and again until that is over would slow it down several times."""
    callee = None
    for caller in walk_up(frame):
        if caller.f_code.co_filename == optimizer.__file__:
            step = caller.f_locals.get("func")  # PyTorch's name for the step that it wraps
            forget_locals(caller)
            if callee is None or callee is not getattr(step, "__code__", None):
                return True
        callee = caller.f_code
    return False
