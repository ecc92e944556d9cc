"""An even share of the time in some intervals: what a recording added to all that the host did.

An estimate adds time between any two events of a trace. As intervals these would be as many as the events, and each
query would be as slow as one over the whole trace. As a share of the stretches in which the host worked, they are few.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.intervals import NOTHING, Intervals, intersection
from profkit.trace.events import Int64s


class Thinned(Struct, frozen=True):
    """``share`` of the time in the intervals ``where``; 1 is all of it."""

    where: Intervals
    share: float

    @property
    def total_ns(self) -> int:
        return int(self.share * self.where.total_ns)

    def at_most(self, total_ns: int) -> Thinned:
        """The same, with a share that takes no more than this in all."""
        return Thinned(self.where, min(self.share, total_ns / max(self.where.total_ns, 1)))

    def covered_before(self, times_ns: Int64s) -> Int64s:
        """For each time, how much of it and of all before is taken."""
        return self.share_of(self.where.covered_before(times_ns))

    def share_of(self, covered_ns: Int64s) -> Int64s:
        """How much of so much time in the intervals is taken."""
        return covered_ns if self.share == 1 else (self.share * covered_ns).astype(np.int64)

    def covered_within(self, start_ns: Int64s, end_ns: Int64s) -> Int64s:
        """For each range, how much of it is taken."""
        return self.covered_before(end_ns) - self.covered_before(start_ns)

    def when_uncovered(self, amounts_ns: Int64s) -> Int64s:
        """The inverse of ``time - covered_before(time)``: the moment by which that much time has passed that is not
        taken."""
        if self.share == 1 or not len(self.where.start_ns):
            return self.where.when_uncovered(amounts_ns)
        edges = np.stack([self.where.start_ns, self.where.end_ns], axis=1).ravel()
        passed = (edges - self.covered_before(edges)).astype(np.float64)
        found = np.interp(amounts_ns, passed, edges)  # it ends at the first and the last edge
        found += np.minimum(amounts_ns - passed[0], 0) + np.maximum(amounts_ns - passed[-1], 0)
        return np.rint(found).astype(np.int64)


UNTOUCHED = Thinned(NOTHING, 1.0)


class Removed(Struct, frozen=True):
    """All of the time in ``whole``, and a share of the rest as in ``thinned``. ``both`` is what lies in the intervals
    of the two."""

    whole: Intervals
    thinned: Thinned
    both: Intervals

    @classmethod
    def of(cls, whole: Intervals, thinned: Thinned) -> Removed:
        return cls(whole, thinned, intersection(whole, thinned.where))

    def covered_before(self, times_ns: Int64s, in_thinned_ns: Int64s) -> Int64s:
        """For each time, how much of it and of all before is removed. ``in_thinned_ns`` is how much of that lies in the
        intervals of ``thinned``."""
        if not len(self.whole.start_ns):
            return self.thinned.share_of(in_thinned_ns)
        whole, both = self.whole.covered_before(times_ns), self.both.covered_before(times_ns)
        return whole + self.thinned.share_of(in_thinned_ns - both)
