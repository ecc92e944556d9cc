"""A second recording that replaces the first if that came too early.

A program may call its model or read its data for a long time before its optimizer first steps, to play the game that it
learns from or to scan the data once. profkit takes these calls or batches for steps and records them. If the optimizer
steps soon after, its steps represent the program better. So do steps that the program announces, however late, as each
may hold a hundred calls of the model. So profkit records these too. The first recording stays until one of the better
steps is measured, or the only one that the allowance permits is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.next_boundary import NextBoundary
from profkit.collect.machine.patience import Patience
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.recorder import Recorder
from profkit.collect.sessions.session import is_capturing
from profkit.run.plan import EXPLICIT

PATIENCE_S = 60.0
"""How long the optimizer may take to step after the first recording: work that lasts longer without it deserves a
report of its own. A program that ends once it is recorded gets as long for that step, and again for measuring steps."""
SIGNAL = "optimizer"
NOTES = {
    SIGNAL: "the optimizer first stepped after other steps were recorded: profkit recorded its steps instead",
    EXPLICIT: "the program announced its first step after others were recorded: profkit recorded its steps instead",
}
"""The note of the second recording, by the signal that ends its steps."""


class Replacement:
    """Calls ``begin`` with the better signal when a step ends by it; for the optimizer at most once, and never while
    something ``is_busy``."""

    def __init__(self, guard: Guard, is_busy: Callable[[], bool], begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._patience: Patience | None = None
        self._following = NextBoundary(guard, is_busy, self._begin_in_time, SIGNAL)

    def announce(self, boundary: StepBoundary, first: Recorder | None) -> bool:
        """The program announces the end of a step after the ``first`` recording. Begin the second if the steps of the
        first were neither announced nor chosen by the user. Return whether it began."""
        is_outdone = first is not None and first.choice.gives_way and first.thread.is_current
        if is_outdone and not (in_backward_pass() or is_capturing()):
            self._begin(boundary.signal)
            return True
        return False

    def wait(self) -> None:
        """The first recording is over: wait for the optimizer to step."""
        if self._patience is None:
            self._patience = Patience(PATIENCE_S)
            self._following.want()

    def remove(self) -> None:
        self._following.remove()

    def _begin_in_time(self, signal: str) -> None:
        if self._patience is not None and not self._patience.is_over():
            self._begin(signal)
