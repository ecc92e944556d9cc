"""Sets of time: disjoint sorted intervals, and what lies inside them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct

from profkit.trace.events import Bools, Int64s, Rows


class Intervals(Struct, frozen=True, dict=True):
    """Disjoint half-open intervals in rising order, in nanoseconds."""

    start_ns: Int64s
    end_ns: Int64s

    @cached_property
    def _lengths_before(self) -> Int64s:
        """The length of all intervals before each, and of all. Rules ask thousands of times for a few events."""
        return np.concatenate([[0], np.cumsum(self.end_ns - self.start_ns)])

    @property
    def total_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())

    def covered_before(self, times_ns: Int64s) -> Int64s:
        """For each time, how much of it and of all before lies inside the intervals."""
        if not len(self.start_ns):
            return np.zeros(np.shape(times_ns), dtype=np.int64)
        index = np.searchsorted(self.start_ns, times_ns, side="right")
        last = (index - 1).clip(min=0)
        inside = np.minimum(times_ns, self.end_ns[last]) - self.start_ns[last]
        return np.where(index > 0, self._lengths_before[last] + inside, 0)

    def when_uncovered(self, amounts_ns: Int64s) -> Int64s:
        """The inverse of ``time - covered_before(time)``: the moment by which that much time has passed outside the
        intervals."""
        before = self._lengths_before
        passed = np.searchsorted(self.start_ns - before[:-1], amounts_ns, side="right")
        return np.asarray(amounts_ns + before[passed], dtype=np.int64)

    def covered_within(self, start_ns: Int64s, end_ns: Int64s) -> Int64s:
        """For each range, how much of it lies inside the intervals."""
        return self.covered_before(end_ns) - self.covered_before(start_ns)

    def clipped_to(self, start_ns: int, end_ns: int) -> Intervals:
        """The part inside one range."""
        start, end = self.start_ns.clip(start_ns, end_ns), self.end_ns.clip(start_ns, end_ns)
        return Intervals(start[end > start], end[end > start])

    def gaps(self, start_ns: int, end_ns: int) -> Intervals:
        """The part of one range that the intervals leave free."""
        inner = self.clipped_to(start_ns, end_ns)
        start = np.concatenate([[start_ns], inner.end_ns])
        end = np.concatenate([inner.start_ns, [end_ns]])
        return Intervals(start[end > start], end[end > start])

    def minus(self, other: Intervals) -> Intervals:
        """What of these intervals lies outside ``other``."""
        if not len(self.start_ns):
            return self
        free = other.gaps(int(self.start_ns[0]), int(self.end_ns[-1]))
        return intersection(self, free)


NOTHING = Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def union(start_ns: Int64s, end_ns: Int64s) -> Intervals:
    """Merge ranges in any order, overlapping or not; empty ranges vanish."""
    keep: Bools = end_ns > start_ns
    start, end = start_ns[keep], end_ns[keep]
    order = np.argsort(start, kind="stable")
    return _joined(start[order], np.maximum.accumulate(end[order]))


def _joined(start: Int64s, reach: Int64s) -> Intervals:
    """Ranges in order, where each begins before the end of all before it joined to them."""
    if not len(start):
        return NOTHING
    apart: Bools = start[1:] > reach[:-1]
    return Intervals(start[np.append(True, apart)], reach[np.append(apart, True)])


def unite(*parts: Intervals) -> Intervals:
    """What lies in any of these."""
    return union(*(np.concatenate([getattr(part, edge) for part in parts]) for edge in ("start_ns", "end_ns")))


def intersection(left: Intervals, right: Intervals) -> Intervals:
    """The part in both: where two are open, one of each."""
    if not (len(left.start_ns) and len(right.start_ns)):
        return NOTHING
    edges = np.concatenate([left.start_ns, right.start_ns, left.end_ns, right.end_ns])
    opening = np.ones(len(edges), dtype=np.int8)
    opening[len(left.start_ns) + len(right.start_ns) :] = -1
    order = np.argsort(edges, kind="stable")  # which merges what is sorted already
    edges = edges[order]
    both = np.flatnonzero(np.cumsum(opening[order], dtype=np.int8)[:-1] == 2)  # those of one side are disjoint
    start, end = edges[both], edges[both + 1]
    return _joined(start[end > start], end[end > start])


def stretches(ends: Rows, length: int, least: int = 1) -> Iterator[slice]:
    """What lies between the places ``ends`` of a sequence of this length, if it has at least so many elements."""
    first, last = np.append(0, ends), np.append(ends, length)
    long = last - first >= least
    yield from map(slice, first[long].tolist(), last[long].tolist())
