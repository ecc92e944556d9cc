"""How many events may still be recorded, so that profkit adds little to a program however many operators it runs.

Each event costs time: PyTorch's stop, counting, writing, then reading and judging. None of this can be interrupted. So
each recording measures the cost, and the next one may hold as many events as the rest of the allowance pays for. The
allowance grows as the program runs. The promise is one of CPU time: profkit's work counts by its thread's, the
program's time by that of the whole process, so that neither other programs on the machine nor waiting change either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from statistics import median

from profkit.collect.program.clocks import time

MAX_EVENTS = 300_000
"""For all recorded steps together, as the prologue predicts them: some five seconds to stop, and 800 MB."""
FEW_EVENTS = 5_000
"""An eighth of a second's work: steps that are this small together are always recorded, whatever was spent before."""
MANY_EVENTS = 9_000
"""This much of a program or step is worth recording: half of what makes a process grow by 8 MB. A part of a step with
this many events says more than the prologue, however large that is."""
LEAST_S, SHARE = 5.0, 0.1
"""How much more CPU time a program may take: this many seconds or this share of its own, whichever is more."""
_FIXED_S = 2.0
"""The fixed cost: starting profkit and PyTorch's profiler, the sampling thread, the end; 0.9 to 2.3 s."""
WATCH_S = 0.6
"""The most that the watch of calls may take in one recording. So much is left aside for it, until it has cost more."""
FUNCTIONS_S = 0.3
"""The most that the watch of functions may take, half of it in each of two steps. It seldom takes a tenth of that, so
nothing is left aside for it."""
_JUDGED_S = 9e-6
"""Per event, besides the stop: 1 µs to record it, 8 µs to read and judge it in two processes."""
_LEAST_EVENT_BYTES, MOST_EVENT_BYTES = 150, 460
"""Memory of one event: 150 in loops of small operators without a graph, the most for wide ones with shapes."""
_STOPPED_S = 17e-6
"""Time to stop per event, until it is measured: 8 to 25 µs."""
_LEAST_STOPPED_S = 1e-7
"""A clock that stands still measures nothing."""
_FEW = 5_000
"""Stopping fewer events than this says nothing about the price of many."""


class Allowance:
    """One for the whole run of a program. ``clock`` is the CPU time of the process with all its threads, of which a
    share is allowed (profkit's own work is taken off). ``computed`` is that of the calling thread: it does profkit's
    work while other threads of the program go on. Each is read a few times per recording, not per operator.

    ``watched_s`` is what was charged for watches. For a rank of a launch only `MAX_EVENTS` is the limit: a rank that
    skipped steps which others record could not be compared with them.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.process_time,
        computed: Callable[[], float] = time.thread_time,
        *,
        is_rank: bool = False,
    ) -> None:
        self._clock, self._computed, self._is_rank = clock, computed, is_rank
        self._begun = clock()
        self._spent_s = self.watched_s = 0.0
        self._stopped_s = _STOPPED_S
        self._events = self._depth = self._openings = self._opening = 0
        self.events_per_s = self.events_per_busy_s = 0.0
        self.event_bytes = MOST_EVENT_BYTES

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Charge what runs inside as the cost of a recording. A nested use is charged once."""
        begun, events, is_outer = self._computed(), self._events, not self._depth
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if is_outer:
                self._pay(self._computed() - begun, self._events - events)

    def charge(self, watched_s: float) -> None:
        """Watching the program's calls took so much CPU time, bit by bit between them."""
        self.watched_s += watched_s

    def note_size(self, events: int, grown_bytes: int) -> None:
        """A recording held ``events``, and the process grew by that much, tensors included."""
        if events >= _FEW:
            self.event_bytes = max(_LEAST_EVENT_BYTES, min(MOST_EVENT_BYTES, grown_bytes // events))

    def count(self, events: int) -> None:
        """The recording being stopped held ``events``."""
        self._events += events

    def count_as_opening(self, events: int, is_kept: bool) -> None:
        """The recording that was counted last held a part of what runs before the first step; the present one if it
        ``is_kept``. Only one is read and judged in the end: the present part, or the steps."""
        self._openings += events
        self._opening = events if is_kept else self._opening

    def note_pace(self, events: int, took_s: float, computed_s: float) -> None:
        """A recording held at least ``events`` in that time on the wall, in which the process computed for so long.
        ``events_per_s`` keeps the highest rate on the wall, ``events_per_busy_s`` that without waiting for a CPU."""
        busy_s = min(took_s, computed_s)  # several threads compute for longer
        if events >= _FEW and busy_s > 0:
            self.events_per_s = max(self.events_per_s, events / took_s)
            self.events_per_busy_s = max(self.events_per_busy_s, events / busy_s)

    @property
    def spent_ns(self) -> int:
        """What recording has cost so far, in nanoseconds of CPU time."""
        return int((self._spent_s + self.watched_s) * 1e9)

    @property
    def events_held(self) -> int:
        """How many events all recordings so far held."""
        return self._events

    @property
    def events_left(self) -> int:
        """How many events may still be recorded, from 0 to `MAX_EVENTS`."""
        if self._is_rank:
            return max(0, MAX_EVENTS - self._events)
        spent_s = self._spent_s + self.watched_s
        allowed_s = max(LEAST_S, SHARE * (self._clock() - self._begun - spent_s)) - _FIXED_S
        left_s = allowed_s - self._spent_s - max(WATCH_S, self.watched_s)
        if_steps_count = (left_s - (self._events - self._openings) * _JUDGED_S) / (self._stopped_s + _JUDGED_S)
        if_opening_counts = (left_s - self._opening * _JUDGED_S) / max(self._stopped_s, _LEAST_STOPPED_S)
        return max(0, min(MAX_EVENTS, int(min(if_steps_count, if_opening_counts))))

    def steps_left(self, events: int) -> int:
        """How many steps with that many events each may still be recorded. What was spent on other work, such as an
        import, never takes the last `FEW_EVENTS`."""
        least = 0 if self._is_rank else min(FEW_EVENTS, MAX_EVENTS)
        return max(self.events_left, least) // max(events, 1)

    def affords(self, step_ns: Sequence[int], a_part_will_do: bool) -> bool:
        """Whether a large step may be recorded, or part of it if ``a_part_will_do``; earlier ones took ``step_ns``."""
        left = self.events_left
        foreseen = self.events_per_s * median(step_ns) / 1e9 if step_ns else inf
        return foreseen <= max(left, FEW_EVENTS) or (a_part_will_do and left >= MANY_EVENTS)

    def _pay(self, took_s: float, events: int) -> None:
        self._spent_s += took_s
        if events >= _FEW:
            self._stopped_s = took_s / events
