"""How long the recorded steps may take, and how large their recording may grow."""

from __future__ import annotations

import time
from collections.abc import Callable

_GROWTH_BYTES = 48 << 20
"""As for the opening: some 180,000 events at most, a second or two to stop."""
_NEVER = float("inf")
_GRACE_S = 1.0
_USUAL_STEPS = 2
"""A step with line marks takes longer than usual: this many times, and the grace."""


class Bounds:
    """From `begin` to `end`. `are_exceeded` may be asked on any thread."""

    def __init__(self, limit_s: float, measure_rss_bytes: Callable[[], int]) -> None:
        self._limit_s, self._measure = limit_s, measure_rss_bytes
        self._deadline = self._patience = self._full_bytes = _NEVER

    def begin(self, usual_step_ns: int) -> None:
        """A recording begins; the program's steps took ``usual_step_ns`` before, 0 where that is not known."""
        now = time.monotonic()
        self._deadline = now + 2 * self._limit_s
        self._patience = now + _USUAL_STEPS * usual_step_ns / 1e9 + _GRACE_S
        self._full_bytes = self._measure() + _GROWTH_BYTES

    def end(self) -> None:
        """Nothing is recorded any more."""
        self._deadline = self._patience = self._full_bytes = _NEVER

    def are_exceeded(self, has_ended: bool) -> bool:
        """``has_ended`` says that the line marks of the step reached their own limit, so that it is no usual one."""
        now = time.monotonic()
        return now > self._deadline or (has_ended and now > self._patience and self._measure() > self._full_bytes)
