"""The next end of a step, waited for while nothing is recorded and nothing of profkit's is in the program.

Between two bytecodes of the main thread the signals of steps are listened to again, and no longer than to the next end
of a step.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from torch.optim import optimizer

from profkit.collect.boundaries.choice import SignalChoice, Verdict
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.boundaries.step_boundary import StepBoundary
from profkit.collect.program.frames import forget_locals, walk_up
from profkit.collect.program.guard import Guard
from profkit.collect.program.interrupts import MainThreadCall
from profkit.collect.sessions.session import is_capturing


class NextBoundary:
    """``begin`` is called once for each time that the boundary is wanted, with the signal that it came by; never while
    something else ``is_busy``. ``signal`` is the one to listen to; None: whatever comes first. A boundary
    ``is_wanted`` until it comes."""

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
        """Listen as soon as nothing is busy; may be called from a signal's handler."""
        self.is_wanted = True
        if not self._is_busy():
            self._call.request()

    def go_on(self, signal: str | None, thread: int | None) -> None:
        """Nothing is busy any more, and steps ended by that ``signal``, on that ``thread``."""
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
        if _calls_hooks(sys._getframe()):  # none must be added meanwhile
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
