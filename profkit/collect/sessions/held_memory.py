"""What the process really holds during a recording, without what the C library merely keeps.

A recording's data lies between the program's results, so large results get new places again and again
(`profkit.collect.machine.heap`): 300 small training steps left 2.2 GB free within the heap, for 13 MB of recording. The
free memory belongs neither to the recording nor to the program, but the system cannot know that until it is given back.
"""

from __future__ import annotations

from collections.abc import Callable

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.machine.heap import give_back, in_use_bytes
from profkit.collect.program.clocks import time

_MOST_KEPT_BYTES = 128 << 20
"""How much may lie free, beyond the most that the program used at once, before it is given back. Giving back this much
takes 8 ms; the system took 30 ms and more to fill it."""
_SHARE = 15
"""And at most this fraction (one in so many) of the machine's available memory."""
_LOOK_SHARE = 0.05
"""Share of the time that reading the heap may take. One look takes 1 ms after 300 training steps, 90 ms if there are
500,000 free places. Everything new counts as held until the next look."""


class HeldMemory:
    """Measures from `begin` on. If the C library does not report what is in use, all resident memory counts."""

    def __init__(
        self,
        measure_rss_bytes: Callable[[], int],
        read_in_use_bytes: Callable[[], int | None] = in_use_bytes,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.thread_time,
    ) -> None:
        self._measure_rss, self._read_in_use = measure_rss_bytes, read_in_use_bytes
        self._clock, self._computed = clock, computed
        self._begun = self._base = self._begun_in_use = self._looked_rss = self._kept = self._stays = 0
        self._most_grown = 0
        self._is_known, self._next_look, self._most_kept = False, 0.0, _MOST_KEPT_BYTES

    def begin(self) -> int:
        """A recording begins. Returns what the process holds."""
        in_use = self._read_in_use()
        self._is_known, self._begun_in_use = in_use is not None, in_use or 0
        self._begun = self._base = self._looked_rss = self._measure_rss()
        self._kept, self._stays, self._most_grown, self._next_look = 0, 0, 0, 0.0
        self._most_kept = min(_MOST_KEPT_BYTES, psutil.virtual_memory().available // _SHARE)
        return self._begun

    def measure(self) -> int:
        """What the process held at the beginning plus what became resident since, without what lies free of this. If
        much lies free, it is given back to the system."""
        rss = self._measure_rss()
        is_due = self._clock() >= self._next_look or rss > self._looked_rss + self._most_kept
        if self._is_known and is_due:
            rss = self._look(rss)
        return self._begun + rss - self._base - self._kept

    def _look(self, rss: int) -> int:
        begun = self._computed()
        grown = (self._read_in_use() or 0) - self._begun_in_use
        self._next_look = self._clock() + (self._computed() - begun) / _LOOK_SHARE
        self._most_grown = max(self._most_grown, grown)
        if rss - self._base - self._most_grown > self._stays + self._most_kept:
            give_back()
            rss = self._measure_rss()
            self._base = min(self._base, rss - grown)  # memory that lay free before the beginning is gone too
            self._most_grown, self._stays = grown, rss - self._base - grown  # the rest is other memory, such as files
        self._kept, self._looked_rss = max(0, rss - self._base - grown), rss
        return rss
