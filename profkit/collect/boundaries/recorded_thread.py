"""Which thread of the program is recorded: the one that began, until it turns out that the work is done on another.

A profiler hears the thread that starts it. Where a program trains, or runs its model, on a thread of its own while the
main thread waits, the prologue hears nothing. Then the prologue is ended, on the main thread, and the thread on which
the next step ends is recorded in its place.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from threading import current_thread, get_ident, main_thread

from profkit.collect.boundaries.step_boundary import StepBoundary
from profkit.plan import EXPLICIT, SIGNALS

_TELLING = (EXPLICIT, SIGNALS["optimizer"])
"""Batches may be asked for, and a model called, by a thread that only helps the recorded one."""
_ENOUGH = 2
"""Steps that ended on another thread, and none on the recorded one."""
_IDLE_S = 1.5
"""So long the recorded thread waited while others worked."""
_IDLE, _AT_WORK = 0.1, 0.5
"""Shares of the time that a thread that waits computes at most, and the whole process at least."""
_SOON_S = 0.02
"""So long a thread that is asked to come by may take until it is woken: four times what Python lets one compute."""
MISSED = (
    "steps of the program ended on another thread than the recorded one: put `with profkit.profile():` into the "
    "function that this thread runs"
)
CUT_OFF = "the program ended while a thread of its own was recorded: of the recording nothing could be kept"


class RecordedThread:
    """``is_waiting`` says that no step ended on the recorded thread yet; ``wake`` interrupts a main thread that waits;
    ``on_end`` is called on an adopted thread when that ends."""

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
        """It came on this thread, and is not heard; whether it is time to ask if the recorded thread `is_idle`."""
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
        """Whether the work is done on another thread than the main one, which is recorded; asked again and again."""
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
        """From here on the thread on which the next step ends is the recorded one."""
        self.ident = None

    def _has_waited(self) -> bool:
        """Whether the recorded thread has waited for long while other threads worked."""
        times = (time.monotonic(), self._computed_s(), time.process_time())
        if self._idle_since is None:
            self._idle_since = times
        wall, own, process = (now - then for now, then in zip(times, self._idle_since, strict=True))
        if own > _IDLE * wall or process < _AT_WORK * wall:
            self._idle_since = times
        return wall >= _IDLE_S and self._idle_since is not times

    def _computed_s(self) -> float:
        """The CPU time of the main thread, which lives as long as Python does; where the system does not tell it, the
        time on the wall."""
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
