"""How much may still be recorded of a program, so that profkit adds little to it, however many operators it runs.

What recording costs is paid by the event: PyTorch's stop, counting, writing, then reading and judging. None of it can
be broken off. So it is measured with each recording that ends, and the next one may hold as many events as what is left
pays for. The longer the program runs, the more that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEAST_S, SHARE = 5.0, 0.1
"""A program may take so much longer, or that share of its time where it is more."""
_FIXED_S = 1.5
"""Of that: profkit's own start and PyTorch's profiler's, the census and the end; 0.9 to 1.6 s were seen."""
_JUDGED_S = 9e-6
"""What a stop does not show, per event: recording it, 1 us; reading and judging it, by two processes, 8."""
_LEAST_EVENT_BYTES, MOST_EVENT_BYTES = 150, 460
"""What recording one takes: loops of small operators without a graph 150, wide ones with shapes the most."""
_STOPPED_S = 17e-6
"""Before any recording was stopped: 8 to 25 us are what it takes per event."""
_FEW = 5_000
"""Events: what stopping fewer takes says nothing of what many take."""


class Allowance:
    """One for the whole run of a program. Work is told by the time that its thread computed, as others on the machine
    are none of its cost; the program's time is the clock's."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._computed = clock, computed
        self._begun = clock()
        self._spent_s = 0.0
        self._stopped_s = _STOPPED_S
        self._events = self._depth = 0
        self.events_per_s, self.event_bytes = 0.0, MOST_EVENT_BYTES

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What is done meanwhile is the cost of a recording; inside itself it changes nothing."""
        begun, events, is_outer = self._computed(), self._events, not self._depth
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if is_outer:
                self._pay(self._computed() - begun, self._events - events)

    def note_size(self, events: int, grown_bytes: int) -> None:
        """A recording held so many events, and the process grew by so much meanwhile: by its own tensors too."""
        if events >= _FEW:
            self.event_bytes = max(_LEAST_EVENT_BYTES, min(MOST_EVENT_BYTES, grown_bytes // events))

    def count(self, events: int) -> None:
        """So many were in the recording that is being stopped."""
        self._events += events

    def note_pace(self, events: int, took_s: float) -> None:
        """A recording held so many events, or more, and ran so long; ``events_per_s`` is of the densest."""
        if events >= _FEW and took_s > 0:
            self.events_per_s = max(self.events_per_s, events / took_s)

    @property
    def events_left(self) -> int:
        """So many events may still be recorded, 0 at least."""
        allowed_s = max(LEAST_S, SHARE * (self._clock() - self._begun)) - _FIXED_S
        left_s = allowed_s - self._spent_s - self._events * _JUDGED_S
        return max(0, int(left_s / (self._stopped_s + _JUDGED_S)))

    def _pay(self, took_s: float, events: int) -> None:
        self._spent_s += took_s
        if events >= _FEW:
            self._stopped_s = took_s / events
