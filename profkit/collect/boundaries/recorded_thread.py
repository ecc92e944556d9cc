"""Which thread of the program is recorded: the first one, until it turns out that another does the work.

A profiler sees the thread that starts it. If a program trains, or runs its model, on another thread while the main
thread waits, the prologue holds nothing. Then it is ended, on the main thread, and the thread on which the next step
ends is recorded instead.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from threading import current_thread, get_ident, main_thread

from profkit.collect.boundaries.choice import StepBoundary
from profkit.plan import EXPLICIT, SIGNALS

_TELLING = (EXPLICIT, SIGNALS["optimizer"])
"""Not batches and calls of the model: they may come from a thread that only helps the recorded one."""
_ENOUGH = 2
"""Steps on another thread, with none on the recorded one."""
_IDLE_S = 1.5
"""How long the recorded thread must have waited while others worked."""
_IDLE, _AT_WORK = 0.1, 0.5
"""Shares of that time that the waiting thread computes at most, and the whole process at least."""
_SOON_S = 0.02
"""How long the main thread may take to answer before it is woken: four of the intervals that Python gives a thread."""
MISSED = (
    "steps of the program ended on another thread than the recorded one: put `with profkit.profile():` into the "
    "function that this thread runs"
)
CUT_OFF = "the program ended while a thread of its own was recorded: nothing of the recording could be kept"


class RecordedThread:
    """``is_waiting`` tells whether no step has ended on the recorded thread yet; ``wake`` interrupts a main thread that
    waits; ``on_end`` is called on the recorded thread when it ends, if it is not the first."""

    def __init__(
        self, is_waiting: Callable[[], bool], on_end: Callable[[], None], wake: Callable[[], None] = lambda: None
    ) -> None:
        self.ident: int | None = get_ident()
        self.is_waiting, self._on_end, self._wake = is_waiting, on_end, wake
        self._ends: Counter[int] = Counter()
        self._asked_at: float | None = None
        self._idle_since: tuple[float, float, float] | None = None
        self._local = threading.local()

    @property
    def is_current(self) -> bool:
        return get_ident() == self.ident

    @property
    def others_step(self) -> bool:
        """Whether steps of the optimizer, or announced ones, ended on another thread."""
        return bool(self._ends)

    def misses(self, boundary: StepBoundary) -> bool:
        """A boundary was not heard. Adopt its thread if none is recorded; else tell whether it is time to ask if the
        recorded one `is_idle`."""
        here = boundary.thread
        if here == self.ident:
            return False
        if self.ident is None:
            self.ident = here
            if current_thread() is not main_thread():
                self._local.end = _AtTheEnd(self._ended)
        elif boundary.signal in _TELLING and self.is_waiting():
            self._ends[here] += 1
            return self._ends[here] >= _ENOUGH
        return False

    def is_idle(self) -> bool:
        """Whether the main thread is recorded and another does the work; asked again and again."""
        if self.ident != main_thread().ident or not self.is_waiting():
            return False
        if max(self._ends.values(), default=0) < _ENOUGH and not self._has_waited():
            return False
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif now - self._asked_at > _SOON_S:  # and no more often than that
            self._asked_at = now
            self._wake()
        return True

    def release(self) -> None:
        """Record the thread on which the next step ends."""
        self.ident = None

    def _has_waited(self) -> bool:
        """Whether the recorded thread has long waited while others worked."""
        times = (time.monotonic(), self._computed_s(), time.process_time())
        if self._idle_since is None:
            self._idle_since = times
        wall, own, process = (now - then for now, then in zip(times, self._idle_since, strict=True))
        if own > _IDLE * wall or process < _AT_WORK * wall:
            self._idle_since = times
        return wall >= _IDLE_S and self._idle_since is not times

    def _computed_s(self) -> float:
        """The CPU time of the main thread, which lives as long as Python; wall time if the system does not tell it."""
        if self.ident is None or not hasattr(time, "pthread_getcpuclockid"):
            return time.monotonic()
        return time.clock_gettime(time.pthread_getcpuclockid(self.ident))

    def _ended(self) -> None:
        if self.is_current:
            self._on_end()


class _AtTheEnd:
    """Lives in a thread's own storage, which Python clears on that thread when it ends."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def __del__(self) -> None:
        self._action()
