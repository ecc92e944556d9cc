"""Which interval of a thread encloses which.

Policy for slices of one thread that overlap without nesting (real traces hold dozens to thousands): an event that
begins inside another belongs to it, and its end is cut to the other's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from profkit.derive.crossing import LEAST, find_crossing, one_timeline
from profkit.derive.intervals import stretches
from profkit.trace.events import NONE, Int32s, Int64s, Rows

BATCH = 1 << 16
"""Events that are looked at at a time, where the trace allows it: more do not fit the processor's caches."""
_MANY = 1 / 64
"""The share of intervals that cross their parent from which on all are looked at, and not each stretch by itself."""
_MOST_ROUNDS = 64
"""In which a stretch grows before all are looked at: a few are enough in real traces."""


def nest(lane: Int32s, start: Int64s, end: Int64s) -> tuple[int, Int32s, Int32s]:
    """How many ends were cut, depth and parent of intervals sorted by lane, start and falling length. Ends that cross
    are cut in place."""
    depth, parent = np.empty(len(start), dtype=np.int32), np.empty(len(start), dtype=np.int32)
    cut = 0
    for part in _batches(lane, start, end):
        of_lane, begins, ends = lane[part], start[part], end[part]
        inner, above = _nest_whole(of_lane, begins, ends)
        crossing = np.flatnonzero((above >= 0) & (begins < ends[above]) & (ends > ends[above]))
        for one in _around(crossing, of_lane, begins, ends):
            cut += _nest_crossing(one, of_lane, begins, ends, inner, above)
        depth[part] = inner
        parent[part] = np.where(above >= 0, above + part.start, NONE)
    return cut, depth, parent


def _nest_crossing(part: slice, lane: Int32s, start: Int64s, end: Int64s, depth: Int64s, parent: Int64s) -> int:
    """Cut what crosses in a stretch that nothing else reaches into, and correct depths and parents there; how many
    ends were cut."""
    of_lane, begins, ends = lane[part], start[part], end[part]
    whole = ends.copy()
    _cut_in_order(begins, ends, np.flatnonzero(find_crossing(of_lane, begins, ends)), of_lane)
    inner, above = _nest_whole(of_lane, begins, ends)
    outer_depth, outer_parent = depth[part.start], parent[part.start]
    depth[part] = inner + outer_depth
    parent[part] = np.where(above >= 0, above + part.start, outer_parent)
    return int((ends < whole).sum())


def _around(crossing: Rows, lane: Int32s, start: Int64s, end: Int64s) -> Sequence[slice]:
    """The stretches that hold these intervals and all that they cross, directly or not: what is open where one begins
    encloses it as a whole, and nothing in it outlasts it. Between them, intervals are nested as they are."""
    if not crossing.size:
        return ()
    if crossing.size > _MANY * len(start):
        return (slice(0, len(start)),)
    begins, ends = _keys_of(lane, start, end)
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
    """The smallest stretch around an interval that no other reaches into or out of."""
    first, last = row, row + 1
    for _ in range(_MOST_ROUNDS):
        until = ends[first:last].max()
        ending = by_end[slice(*np.searchsorted(ordered, (begins[first], until)))]
        grown = int(ending.min(initial=first)), int(np.searchsorted(begins, until))
        if grown == (first, last):
            return slice(first, last)
        first, last = grown
    return slice(0, len(begins))


def _batches(lane: Int32s, start: Int64s, end: Int64s) -> Iterator[slice]:
    """Stretches of intervals that nothing from before reaches into, of a size that fits the processor's caches."""
    reach, free = LEAST, []
    for at, begin_key, end_key in _keys(lane, start, end):
        latest = np.maximum.accumulate(np.append(reach, end_key))
        free.append(at + np.flatnonzero(begin_key > latest[:-1]))
        reach = int(latest[-1])
    places = np.concatenate(free) if free else np.zeros(0, dtype=np.int64)
    yield from stretches(places[np.flatnonzero(np.diff(places // BATCH, prepend=0))], len(start))


def _keys(lane: Int32s, start: Int64s, end: Int64s) -> Iterator[tuple[int, Int64s, Int64s]]:
    """The keys of `_nest_whole`, one stretch after another, and where each stretch begins."""
    if not len(lane):
        return
    first, last, lanes = int(start.min()), max(int(end.max()), int(start.max()) + 1), int(lane.max()) + 1
    span = 2 * (last - first) + 2
    if lanes * span >= 2**63:
        yield 0, *_keys_of(lane, start, end)
        return
    for at in range(0, len(lane), BATCH):
        part = slice(at, at + BATCH)
        offset = lane[part] * np.int64(span) - 2 * first
        yield at, 2 * start[part] + 1 + offset, np.maximum(2 * end[part], 2 * start[part] + 2) + offset


def _keys_of(lane: Int32s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Begins and ends of all lanes on one timeline, no begin equal to an end, and none of no length."""
    return one_timeline(lane, 2 * start + 1, np.maximum(2 * end, 2 * start + 2))


def _nest_whole(lane: Int32s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Depth and parent of intervals sorted by lane, start and falling length.

    The depth is the number of intervals open at the start: those that began before, less those that ended before. The
    parent of an interval of depth d is the last one of depth d - 1 that stands before it, found for all at once by
    searching the sorted keys ``depth * n + index``; as what is looked for is sorted too, the search is a fast one.
    """
    n = len(start)
    begin_key, end_key = _keys_of(lane, start, end)
    depth = np.arange(n) - np.searchsorted(np.sort(end_key, kind="stable"), begin_key)  # fast on what is nearly sorted
    rows = np.argsort(depth.astype(np.int16) if n and depth.max() < 2**15 else depth, kind="stable")
    by_key = depth[rows] * n + rows
    position = np.searchsorted(by_key, by_key - n) - 1
    parent = np.full(n, NONE, dtype=np.int64)
    parent[rows] = np.where(depth[rows] > 0, rows[position.clip(min=0)], NONE)
    return depth, parent


def _cut_in_order(start: Int64s, end: Int64s, rows: Rows, lane: Int32s) -> None:
    """Cut the ends of these intervals in place, one after another.

    Each cut decides what is still open for all that follow, so this cannot be done for all at once. An interval is only
    ever cut to the end of one that it crosses, so those that cross none, which are nearly all, need not come here.
    """
    open_ends: list[int] = []
    current, ends = NONE, end[rows].tolist()
    for i, (thread, begin) in enumerate(zip(lane[rows].tolist(), start[rows].tolist(), strict=True)):
        if thread != current:
            current, open_ends = thread, []
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if open_ends and ends[i] > open_ends[-1]:
            ends[i] = open_ends[-1]
        open_ends.append(ends[i])
    end[rows] = ends
