"""Which interval of a thread encloses which.

Events of one thread may overlap without nesting; real traces hold dozens to thousands of these. An event that begins
inside another belongs to it, and its end is cut to the other's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.crossing import LEAST, find_crossing
from profkit.derive.timeline.intervals import stretches
from profkit.trace.events import NONE, Int32s, Int64s, Rows

BATCH = 1 << 16
"""Events to process at a time if the trace allows it. More would not fit the CPU's caches."""
_MANY_CROSSING_SHARE = 1 / 64
"""If a larger share of the intervals crosses others, all are processed at once instead of stretch by stretch."""
_MOST_ROUNDS = 64
"""A stretch that still grows after this many rounds is widened to all intervals. Real traces need a few."""


class Nested(Struct, frozen=True):
    """Columns over the intervals of a thread: their ends, which are cut where they cross others, and three columns to
    fill: the depth, the parent (or `NONE`), and the first interval that begins at the end or later."""

    end: Int64s
    depth: Int32s
    parent: Int32s
    stop: Int32s

    def part(self, of: slice | Rows) -> Nested:
        """The same columns of some intervals: views that can be filled for a slice, else copies."""
        return Nested(self.end[of], self.depth[of], self.parent[of], self.stop[of])


def nest(start: Int64s, nested: Nested, first: int = 0) -> int:
    """Nest the intervals of one thread, sorted by start and falling length; returns how many ends were cut.

    The first of them has the number ``first``.
    """
    cut = 0
    for part in _batches(start, nested.end):
        begins, ends, before = start[part], nested.end[part], first + part.start
        depth, parent = _nest_whole(begins, ends)
        crossing = np.flatnonzero((parent >= 0) & (begins < ends[parent]) & (ends > ends[parent]))
        for one in _around(crossing, begins, ends):
            cut += _nest_crossing(one, begins, ends, depth, parent)
        nested.depth[part] = depth
        nested.parent[part] = np.where(parent >= 0, parent + before, NONE)
        nested.stop[part] = before + first_behind(begins, begins, ends)
    return cut


def first_behind(begins: Int64s, start: Int64s, end: Int64s) -> Rows:
    """The first of ``begins``, in rising order, at or after each interval's end. An interval without length ends after
    those that begin with it."""
    return np.searchsorted(begins, np.maximum(end, start + 1))


def _nest_crossing(part: slice, start: Int64s, end: Int64s, depth: Int64s, parent: Int64s) -> int:
    """Cut crossing intervals in a stretch that no other interval reaches into, and correct depths and parents there.
    Returns how many ends were cut."""
    begins, ends = start[part], end[part]
    whole = ends.copy()
    _cut_in_order(begins, ends, np.flatnonzero(find_crossing(begins, ends)))
    inner, above = _nest_whole(begins, ends)
    outer_depth, outer_parent = depth[part.start], parent[part.start]
    depth[part] = inner + outer_depth
    parent[part] = np.where(above >= 0, above + part.start, outer_parent)
    return int((ends < whole).sum())


def _around(crossing: Rows, start: Int64s, end: Int64s) -> Sequence[slice]:
    """The stretches that hold these intervals and all that they cross, directly or not. An interval that is open at the
    start of a stretch encloses all of it, and none in it ends later. Outside them, intervals nest as they are."""
    if not crossing.size:
        return ()
    if crossing.size > _MANY_CROSSING_SHARE * len(start):
        return (slice(0, len(start)),)
    begins, ends = _keys(start, end)
    by_end = np.argsort(ends, kind="stable")
    ordered = ends[by_end]
    found: list[slice] = []
    for row in crossing.tolist():
        if not found or row >= found[-1].stop:
            one = _grown(row, begins, ends, by_end, ordered)
            while found and found[-1].start >= one.start:
                found.pop()
            found.append(one)
    return found


def _grown(row: int, begins: Int64s, ends: Int64s, by_end: Rows, ordered: Int64s) -> slice:
    """The smallest stretch around an interval that no other interval reaches into or out of."""
    first, last = row, row + 1
    for _ in range(_MOST_ROUNDS):
        until = ends[first:last].max()
        ending = by_end[slice(*np.searchsorted(ordered, (begins[first], until)))]
        grown = int(ending.min(initial=first)), int(np.searchsorted(begins, until))
        if grown == (first, last):
            return slice(first, last)
        first, last = grown
    return slice(0, len(begins))


def _batches(start: Int64s, end: Int64s) -> Iterator[slice]:
    """Stretches that no earlier interval reaches into, of a size that fits the processor's caches."""
    reach, free = LEAST, []
    for at in range(0, len(start), BATCH):
        begin_key, end_key = _keys(start[at : at + BATCH], end[at : at + BATCH])
        latest = np.maximum.accumulate(np.append(reach, end_key))
        free.append(at + np.flatnonzero(begin_key > latest[:-1]))
        reach = int(latest[-1])
    places = np.concatenate(free) if free else np.zeros(0, dtype=np.int64)
    yield from stretches(places[np.flatnonzero(np.diff(places // BATCH, prepend=0))], len(start))


def _keys(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Begins and ends on one scale on which no begin equals an end and every interval has a length."""
    begins = 2 * start + 1
    return begins, np.maximum(2 * end, begins + 1)


def _nest_whole(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Depth and parent of intervals sorted by start and falling length.

    The depth is the number of intervals open at the start: those that began before, less those that ended before. The
    parent of an interval of depth d is the last one of depth d - 1 before it. One search in the sorted keys
    ``depth * n + index`` finds all of them, and is fast as the keys that it looks for are sorted too.
    """
    n = len(start)
    begin_key, end_key = _keys(start, end)
    depth = np.arange(n) - np.searchsorted(np.sort(end_key, kind="stable"), begin_key)  # fast on what is nearly sorted
    rows = np.argsort(depth.astype(np.int16) if n and depth.max() < 2**15 else depth, kind="stable")
    by_key = depth[rows] * n + rows
    position = np.searchsorted(by_key, by_key - n) - 1
    parent = np.full(n, NONE, dtype=np.int64)
    parent[rows] = np.where(depth[rows] > 0, rows[position.clip(min=0)], NONE)
    return depth, parent


def _cut_in_order(start: Int64s, end: Int64s, rows: Rows) -> None:
    """Cut the ends of these intervals in place, one after another.

    Each cut decides what is still open for the following ones, so this cannot be done for all at once. An interval is
    only cut to the end of one that it crosses. Nearly all cross none and need not come here.
    """
    open_ends: list[int] = []
    ends = end[rows].tolist()
    for i, begin in enumerate(start[rows].tolist()):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if open_ends and ends[i] > open_ends[-1]:
            ends[i] = open_ends[-1]
        open_ends.append(ends[i])
    end[rows] = ends
