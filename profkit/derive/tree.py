"""The call tree of the host threads: which event encloses which, and the time each spends in itself.

Policy for slices of one thread that overlap without nesting (real traces hold dozens to thousands): an event that
begins inside another belongs to it, and its end is cut to the other's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit.derive.crossing import find_crossing, one_timeline
from profkit.derive.intervals import stretches
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows, Trace, distinct

_HOST = (
    Category.OPERATOR,
    Category.ANNOTATION,
    Category.PYTHON,
    Category.RUNTIME,
    Category.MEMORY,
    Category.LINE_MARK,
    Category.PAUSE,
    Category.HOST_MARK,
)

_BATCH = 1 << 16
"""Events that are nested at a time, where the trace allows it."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Columns over all events of the trace; events that are not on a host thread have depth and parent `NONE`.

    The events stand in preorder, so the descendants of row ``i`` are the rows from ``i + 1`` up to, not with,
    ``stop[i]``. ``end_ns`` is cut where slices overlap without nesting; ``overlapping`` counts those.
    """

    parent: Int64s
    depth: Int64s
    stop: Rows
    end_ns: Int64s
    self_ns: Int64s
    overlapping: int

    def nearest_ancestor(self, wanted: Bools, include_self: bool = False) -> Rows:
        """For each event the row of its innermost ancestor in ``wanted``, or `NONE`.

        An event with ``c`` wanted ancestors has as the innermost the last row before it that is itself wanted and has
        ``c - 1``: found for all at once by searching the sorted keys ``c * n + row``.
        """
        n = len(self.parent)
        above = self._count_above(wanted)
        rows = np.flatnonzero(wanted & (self.depth >= 0))
        found = np.full(n, NONE, dtype=np.int64)
        below = np.flatnonzero(above > 0)
        if below.size:
            keys = np.sort(above[rows] * n + rows)
            found[below] = keys[np.searchsorted(keys, (above[below] - 1) * n + below) - 1] % n
        if include_self:
            found[wanted] = np.flatnonzero(wanted)
        return found

    def under(self, wanted: Bools) -> Bools:
        """Which events are in ``wanted`` or have an ancestor there."""
        return wanted | (self._count_above(wanted) > 0)

    def outermost(self, wanted: Bools) -> Bools:
        """Those in ``wanted`` that have no ancestor there."""
        alone: Bools = wanted & (self._count_above(wanted) == 0)
        return alone

    def total_under(self, values: Int64s) -> Int64s:
        """Per event the sum of ``values`` over itself and its descendants; its own value off the host threads."""
        inside = self.depth >= 0
        sums = np.concatenate([[0], np.cumsum(np.where(inside, values, 0))])
        return np.where(inside, sums[self.stop] - sums[:-1], values)

    def _count_above(self, wanted: Bools) -> Int64s:
        """For each event how many of its ancestors are wanted."""
        rows = np.flatnonzero(wanted & (self.depth >= 0))
        if not rows.size:
            return np.zeros(len(self.parent), dtype=np.int64)
        change = np.zeros(len(self.parent) + 1, dtype=np.int64)
        change[rows + 1] += 1
        np.subtract.at(change, self.stop[rows], 1)
        above = np.cumsum(change[:-1])
        above[self.depth < 0] = 0
        return above


def build_tree(trace: Trace) -> Tree:
    """Nest the host events of ``trace``."""
    events = trace.events
    on_host = np.array([not lane.on_device for lane in trace.lanes], dtype=bool)
    rows = np.flatnonzero(np.isin(events.category, _HOST) & on_host[events.lane])
    lane, start, end = events.lane[rows].astype(np.int64), events.start_ns[rows], events.end_ns[rows].copy()
    depth, parent = _nest_all(lane, start, end)
    own = end - start
    np.subtract.at(own, parent[parent >= 0], (end - start)[parent >= 0])
    return Tree(
        parent=_spread(len(events), rows, np.where(parent >= 0, rows[parent], NONE)),
        depth=_spread(len(events), rows, depth),
        stop=_stops(events.lane, events.start_ns, rows, end),
        end_ns=_place(events.end_ns, rows, end),
        self_ns=_place(events.duration_ns, rows, own.clip(min=0)),
        overlapping=int((end < events.end_ns[rows]).sum()),
    )


def _nest_all(lane: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Depth and parent of intervals sorted by lane, start and falling length. Ends that cross are cut in place."""
    depth, parent = np.empty(len(start), dtype=np.int64), np.empty(len(start), dtype=np.int64)
    for part in _batches(lane, start, end):
        of_lane, begins, ends = lane[part], start[part], end[part]
        inner, above = _nest(of_lane, begins, ends)
        crossing = (above >= 0) & (begins < ends[above]) & (ends > ends[above])
        if crossing.any():
            _cut_in_order(begins, ends, np.flatnonzero(find_crossing(of_lane, begins, ends)), of_lane)
            inner, above = _nest(of_lane, begins, ends)
        depth[part] = inner
        parent[part] = np.where(above >= 0, above + part.start, NONE)
    return depth, parent


def _batches(lane: Int64s, start: Int64s, end: Int64s) -> Iterator[slice]:
    """Stretches of intervals that nothing from before reaches into, of a size that fits the processor's caches."""
    begin_key, end_key = one_timeline(lane, 2 * start + 1, np.maximum(2 * end, 2 * start + 2))
    free = np.flatnonzero(begin_key[1:] > np.maximum.accumulate(end_key)[:-1]) + 1
    number = free // _BATCH
    yield from stretches(free[np.flatnonzero(np.diff(number, prepend=0))], len(start))


def _nest(lane: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Depth and parent of intervals sorted by lane, start and falling length.

    The depth is the number of intervals open at the start: those that began before, less those that ended before. The
    parent of an interval of depth d is the last one of depth d - 1 that stands before it, found for all at once by
    searching the sorted keys ``depth * n + index``; as what is looked for is sorted too, the search is a fast one.
    """
    n = len(start)
    begin_key, end_key = one_timeline(lane, 2 * start + 1, np.maximum(2 * end, 2 * start + 2))
    depth = np.arange(n) - np.searchsorted(np.sort(end_key, kind="stable"), begin_key)  # fast on what is nearly sorted
    rows = np.argsort(depth.astype(np.int16) if n and depth.max() < 2**15 else depth, kind="stable")
    by_key = depth[rows] * n + rows
    position = np.searchsorted(by_key, by_key - n) - 1
    parent = np.full(n, NONE, dtype=np.int64)
    parent[rows] = np.where(depth[rows] > 0, rows[position.clip(min=0)], NONE)
    return depth, parent


def _stops(lane: Int32s, start: Int64s, rows: Rows, end: Int64s) -> Rows:
    """For each of ``rows`` the first row of its lane that begins at its end or later; for all others the next row."""
    begin_key = 2 * start + 1
    end_key = np.maximum(2 * end, begin_key[rows] + 1)
    stops = np.arange(1, len(start) + 1)
    for code in distinct(lane[rows]):
        first, last = np.searchsorted(lane, (code, code + 1))
        mine = lane[rows] == code
        stops[rows[mine]] = first + np.searchsorted(begin_key[first:last], end_key[mine])
    return stops


def _cut_in_order(start: Int64s, end: Int64s, rows: Rows, lane: Int64s) -> None:
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


def _spread(length: int, rows: Rows, values: Int64s) -> Int64s:
    column = np.full(length, NONE, dtype=np.int64)
    column[rows] = values
    return column


def _place(column: Int64s, rows: Rows, values: Int64s) -> Int64s:
    changed = column.copy()
    changed[rows] = values
    return changed
