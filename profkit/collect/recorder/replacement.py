"""A second recording in the place of the first, where that came too early.

A program may call its model, or read its data, for long before its optimizer steps for the first time: to play the game
that it learns from, or to look at the data once. Calls and batches are taken for steps then, and recorded. If the
optimizer steps soon after, its steps are what the program is about. If the program itself says that a step ends,
however late, that is what its steps are: it may call its model a hundred times in each. They are recorded too, and what
was recorded first stands until one of them was measured, or the only one that can be afforded was recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from profkit.collect.boundaries.next_boundary import NextBoundary
from profkit.collect.boundaries.step_boundary import StepBoundary
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.recorder import Recorder
from profkit.collect.sessions.session import is_capturing
from profkit.plan import EXPLICIT

PATIENCE_S = 60.0
"""After the first recording. What the program does for so long without its optimizer is worth looking at itself; one
that is to end once it is recorded goes on for no longer, before that step and then until such steps were measured."""
SIGNAL = "optimizer"
ANEW = {
    SIGNAL: "the optimizer stepped after other steps had been recorded: these are its own, recorded anew",
    EXPLICIT: "the program announced a step after others had been recorded: these are its own, recorded anew",
}
"""What a second recording says of itself, by the signal that its steps end by."""


class Replacement:
    """``begin`` is called with the signal that the steps of the second recording end by, at the end of such a step; of
    the optimizer at most once, and never while something ``is_busy``."""

    def __init__(self, guard: Guard, is_busy: Callable[[], bool], begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._end: float | None = None
        self._following = NextBoundary(guard, is_busy, self._begin_in_time, SIGNAL)

    def announce(self, boundary: StepBoundary, first: Recorder | None) -> bool:
        """The program says that a step of its own ends here, while nothing is recorded any more. Where the steps of the
        ``first`` recording were none that it announced, and nobody chose them, the second one begins, which is said."""
        is_outdone = first is not None and first.choice.gives_way and first.thread.is_current
        if is_outdone and not (in_backward_pass() or is_capturing()):
            self._begin(boundary.signal)
            return True
        return False

    def wait(self) -> None:
        """The first recording is over."""
        if self._end is None:
            self._end = time.monotonic() + PATIENCE_S
            self._following.want()

    def remove(self) -> None:
        self._following.remove()

    def _begin_in_time(self, signal: str) -> None:
        if self._end is not None and time.monotonic() <= self._end:
            self._begin(signal)
