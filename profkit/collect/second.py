"""A second recording in the place of the first, where that came too early.

A program may call its model, or read its data, for long before its optimizer steps for the first time: to play the game
that it learns from, or to look at the data once. Calls and batches are taken for steps then, and recorded. If the
optimizer steps soon after, its steps are what the program is about. They are recorded too, and what was recorded first
stands until one of them was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from profkit.collect.guard import Guard
from profkit.collect.windows import WindowRequests

PATIENCE_S = 60.0
"""After the first recording. What the program does for so long without its optimizer is worth looking at itself."""
SIGNAL = "optimizer"
ANEW = "the optimizer stepped after other steps had been recorded: these are its own, recorded anew"


class SecondRecording:
    """``begin`` is called at most once, at the end of a step of the optimizer; never while ``is_busy``."""

    def __init__(self, guard: Guard, is_busy: Callable[[], bool], begin: Callable[[], None]) -> None:
        self._begin = begin
        self._end: float | None = None
        self._request = WindowRequests(guard, is_busy, self._begin_in_time)

    def wait(self) -> None:
        """The first recording is over."""
        if self._end is None:
            self._end = time.monotonic() + PATIENCE_S
            self._request.signal_name = SIGNAL
            self._request.want()

    def remove(self) -> None:
        self._request.remove()

    def _begin_in_time(self, _signal: str) -> None:
        if self._end is not None and time.monotonic() <= self._end:
            self._begin()
