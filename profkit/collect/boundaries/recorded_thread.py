"""Which thread of the program is recorded: the first one, until another turns out to do the work.

A profiler sees only the thread that starts it. If a program trains, or runs its model, on another thread while the main
thread waits, the prologue holds nothing. Then profkit ends the prologue on the main thread and records the thread on
which the next step ends.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from threading import current_thread, get_ident, get_native_id, main_thread

from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.machine.page_faults import count_crowded_ns, count_crowded_ns_of_all
from profkit.collect.program.clocks import time
from profkit.run.plan import EXPLICIT, SIGNALS

_TELLING = (EXPLICIT, SIGNALS["optimizer"])
"""Batches and calls of the model do not count: they may come from a thread that only helps the recorded one."""
_ENOUGH = 2
"""Steps on another thread, while none ended on the recorded one."""
_IDLE_S = 1.5
"""How long the recorded thread must wait while others work."""
_IDLE, _AT_WORK = 0.1, 0.5
"""Shares of that time: the most that the waiting thread may compute, or wait for a busy CPU to do so, and the least
that the whole process must."""
_SOON_S = 0.02
"""How long the main thread may take to answer before profkit wakes it: four of Python's thread switch intervals."""
MISSED = (
    "steps of the program ended on a thread that was not recorded: put `with profkit.profile():` into the function "
    "that this thread runs"
)
CUT_OFF = "the program ended while one of its own threads was recorded: none of that recording could be kept"


class RecordedThread:
    """``is_waiting`` says that no step has ended on the recorded thread yet. ``wake`` interrupts a waiting main thread.
    ``on_end`` is called on the recorded thread when it ends, unless it is the main thread."""

    def __init__(
        self, is_waiting: Callable[[], bool], on_end: Callable[[], None], wake: Callable[[], None] = lambda: None
    ) -> None:
        self.ident: int | None = get_ident()
        self._native_id = get_native_id()  # Python keeps that of the parent after a fork
        self.is_waiting, self._on_end, self._wake = is_waiting, on_end, wake
        self._ends: Counter[int] = Counter()
        self._asked_at: float | None = None
        self._idle_since: tuple[float, float, float] | None = None
        self._local = threading.local()
        self._watch_for_end()

    @property
    def is_current(self) -> bool:
        return get_ident() == self.ident

    @property
    def others_step(self) -> bool:
        """Whether optimizer steps or announced steps ended on another thread."""
        return bool(self._ends)

    def misses(self, boundary: StepBoundary) -> bool:
        """A boundary went unheard. Adopt its thread if none is recorded; else return whether to ask now if the recorded
        thread `is_idle`."""
        here = boundary.thread
        if here == self.ident:
            return False
        if self.ident is None:
            self.ident, self._native_id = here, get_native_id()
            self._watch_for_end()
        elif boundary.signal in _TELLING and self.is_waiting():
            self._ends[here] += 1
            return self._ends[here] >= _ENOUGH
        return False

    def is_idle(self) -> bool:
        """Whether the main thread is recorded while another does the work; called again and again."""
        if self.ident != main_thread().ident or not self.is_waiting():
            return False
        if max(self._ends.values(), default=0) < _ENOUGH and not self._has_waited():
            return False
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif now - self._asked_at > _SOON_S:  # at most this often
            self._asked_at = now
            self._wake()
        return True

    def release(self) -> None:
        """From now on record the thread on which the next step ends."""
        self.ident = None

    def _has_waited(self) -> bool:
        """Whether the recorded thread has waited for `_IDLE_S` while others worked. What waits for a busy CPU is at
        work, the recorded thread too: beside a dozen busy programs it computes for less than a tenth of the time."""
        own_s = self._computed_s() + (count_crowded_ns(self._native_id) or 0) / 1e9
        times = (time.monotonic(), own_s, time.process_time() + count_crowded_ns_of_all() / 1e9)
        if self._idle_since is None:
            self._idle_since = times
        wall, own, process = (now - then for now, then in zip(times, self._idle_since, strict=True))
        if own > _IDLE * wall or process < _AT_WORK * wall:
            self._idle_since = times
        return wall >= _IDLE_S and self._idle_since is not times

    def _computed_s(self) -> float:
        """The CPU time of the main thread, which lives as long as Python; wall time if the system hides it."""
        if self.ident is None or not hasattr(time, "pthread_getcpuclockid"):
            return time.monotonic()
        return time.clock_gettime(time.pthread_getcpuclockid(self.ident))

    def _watch_for_end(self) -> None:
        if current_thread() is not main_thread():
            self._local.end = _AtTheEnd(self._ended)

    def _ended(self) -> None:
        if self.is_current:
            self._on_end()


class _AtTheEnd:
    """Lives in thread-local storage, which Python clears on the thread itself when it ends."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def __del__(self) -> None:
        self._action()
