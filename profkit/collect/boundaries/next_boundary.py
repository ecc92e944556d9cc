"""Waiting for the next end of a step after a recording, when nothing of profkit is left in the program.

The main thread starts listening to step signals between two bytecodes, and stops at the next step.
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
    """Calls ``begin`` with the signal of the next boundary, once per `want`, but never while something else
    ``is_busy``. It listens to ``signal`` only, or by default to whatever comes first."""

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
        """Listen as soon as nothing is busy; safe in a signal handler."""
        self.is_wanted = True
        if not self._is_busy():
            self._call.request()

    def go_on(self, signal: str | None, thread: int | None) -> None:
        """Nothing is busy any more; the last steps ended by ``signal`` on ``thread``."""
        self._signal, self._thread = signal, thread
        if self.is_wanted:
            self._call.request()

    def take(self, boundary: StepBoundary) -> None:
        """A signal came, or the program announced the end of a step."""
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
        """Stop listening."""
        self.is_wanted = False
        self._stop_listening()

    def _listen(self) -> None:
        if not self.is_wanted or self._signals is not None or self._is_busy():
            return
        if calls_hooks(sys._getframe()):  # adding a hook now would break its loop over them
            self._call.request()
            return
        self._choice = SignalChoice(self._signal, has_begun=self._signal is not None)
        self._signals = StepSignals(self.take, self._guard, self._signal)
        self._signals.install()

    def _stop_listening(self) -> None:
        signals, self._signals = self._signals, None
        if signals is not None:
            signals.remove()


def calls_hooks(frame: FrameType | None) -> bool:
    """Whether an optimizer is calling its hooks: any code of its own is running except the step itself. The step may
    call a closure that trains for minutes, and asking again and again until it ends would slow it down several times.
    """
    callee = None
    for caller in walk_up(frame):
        if caller.f_code.co_filename == optimizer.__file__:
            step = caller.f_locals.get("func")  # PyTorch's name for the wrapped step
            forget_locals(caller)
            if callee is None or callee is not getattr(step, "__code__", None):
                return True
        callee = caller.f_code
    return False
