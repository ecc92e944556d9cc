"""A second recording in place of the first, if that came too early.

A program may call its model or read its data for a long time before its optimizer first steps: to play the game that it
learns from, or to look at the data once. These calls or batches are taken for steps and recorded. If the optimizer
steps soon after, its steps are what the program is about; steps that the program announces are, however late they come,
as each may hold a hundred calls of the model. So they are recorded too, and the first recording stands until one of
them is measured, or the only one that can be afforded is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.next_boundary import NextBoundary
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.collect.recorder.recorder import Recorder
from profkit.collect.sessions.session import is_capturing
from profkit.plan import EXPLICIT

PATIENCE_S = 60.0
"""How long the optimizer may take to step after the first recording: what goes on longer without it is worth a report
itself. A program that is to end once it is recorded gets as long for that step, and again for measuring such steps."""
SIGNAL = "optimizer"
ANEW = {
    SIGNAL: "the optimizer stepped after other steps had been recorded: these are its own, recorded anew",
    EXPLICIT: "the program announced a step after others had been recorded: these are its own, recorded anew",
}
"""The note of a second recording, by the signal that ends its steps."""


class Replacement:
    """``begin`` is called where a step ends that the second recording should have been of, with its signal; for the
    optimizer at most once, and never while something ``is_busy``."""

    def __init__(self, guard: Guard, is_busy: Callable[[], bool], begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._end: float | None = None
        self._following = NextBoundary(guard, is_busy, self._begin_in_time, SIGNAL)

    def announce(self, boundary: StepBoundary, first: Recorder | None) -> bool:
        """The program announces the end of a step when nothing is recorded any more. Begin the second recording if the
        steps of the ``first`` were neither announced nor chosen by the user; whether it began."""
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
