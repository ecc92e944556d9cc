"""What the process holds while something is recorded, and what the C library only keeps.

What a recording keeps lies between the program's results, so that large results get new places again and again
(`profkit.collect.machine.heap`): 300 small training steps left 2.2 GB free within the heap, and 13 MB of it to the
recording. What lies free is neither the recording's nor the program's, but the system does not know: it has to be given
back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.machine.heap import give_back, in_use_bytes

_MOST_KEPT_BYTES = 128 << 20
"""How much may lie free, beyond what the program used at once and may use again, before it is given back. That takes 8
ms for so much; for the system to fill it took 30 and more."""
_SHARE = 15
"""And no more than this part of the memory that the machine has left."""
_LOOK_SHARE = 0.05
"""Share of the time that reading the heap may take: 1 ms each time after 300 training steps, 90 where a program leaves
500,000 free places. What comes until the next look counts as held."""


class HeldMemory:
    """From `begin` on. Where the C library does not tell what is in use, all resident memory counts."""

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
        self._is_told, self._next_look, self._most_kept = False, 0.0, _MOST_KEPT_BYTES

    def begin(self) -> int:
        """A recording begins; what the process holds."""
        in_use = self._read_in_use()
        self._is_told, self._begun_in_use = in_use is not None, in_use or 0
        self._begun = self._base = self._looked_rss = self._measure_rss()
        self._kept, self._stays, self._most_grown, self._next_look = 0, 0, 0, 0.0
        self._most_kept = min(_MOST_KEPT_BYTES, psutil.virtual_memory().available // _SHARE)
        return self._begun

    def measure(self) -> int:
        """What it held at the beginning and what has become resident since, less what lies free of this. If that is
        much, it is given back to the system."""
        rss = self._measure_rss()
        is_due = self._clock() >= self._next_look or rss > self._looked_rss + self._most_kept
        if self._is_told and is_due:
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
            self._base = min(self._base, rss - grown)  # what lay free before the beginning is gone as well
            self._most_grown, self._stays = grown, rss - self._base - grown  # what stays is other memory, such as files
        self._kept, self._looked_rss = max(0, rss - self._base - grown), rss
        return rss
