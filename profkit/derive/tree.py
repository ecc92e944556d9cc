"""The call tree of the host threads: which event encloses which, and the time each spends in itself.

Policy for slices of one thread that overlap without nesting (real traces hold dozens to thousands): an event that
begins inside another belongs to it, and its end is cut to the other's end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows, Trace

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
        change = np.zeros(len(self.parent) + 1, dtype=np.int64)
        change[rows + 1] += 1
        np.subtract.at(change, self.stop[rows], 1)
        return np.where(self.depth >= 0, np.cumsum(change)[:-1], 0)


def build_tree(trace: Trace) -> Tree:
    """Nest the host events of ``trace``."""
    events = trace.events
    on_host = np.array([not lane.on_device for lane in trace.lanes], dtype=bool)
    rows = np.flatnonzero(np.isin(events.category, _HOST) & on_host[events.lane])
    lane, start, end = events.lane[rows].astype(np.int64), events.start_ns[rows], events.end_ns[rows].copy()
    depth, parent = _nest(lane, start, end)
    crossing = (parent >= 0) & (start < end[parent]) & (end > end[parent])
    if crossing.any():
        _cut_in_order(lane, start, end, np.unique(lane[crossing]))
        depth, parent = _nest(lane, start, end)
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


def _nest(lane: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Depth and parent of intervals sorted by lane, start and falling length.

    The depth is the number of intervals open at the start. The parent of an interval of depth d is the last one of
    depth d - 1 that stands before it, found for all at once by searching the sorted keys ``depth * n + index``.
    """
    n = len(start)
    begin_key, end_key = 2 * start + 1, np.maximum(2 * end, 2 * start + 2)
    order = np.lexsort((np.concatenate([begin_key, end_key]), np.concatenate([lane, lane])))
    change = np.where(order < n, 1, -1)
    opened = np.cumsum(change)
    depth = np.empty(n, dtype=np.int64)
    begins = order < n
    depth[order[begins]] = opened[begins] - 1
    key = depth * n + np.arange(n)
    by_key = np.sort(key)
    position = np.searchsorted(by_key, key - n) - 1
    parent = np.where(depth > 0, by_key[position.clip(min=0)] % max(n, 1), NONE)
    return depth, parent


def _stops(lane: Int32s, start: Int64s, rows: Rows, end: Int64s) -> Rows:
    """For each of ``rows`` the first row of its lane that begins at its end or later; for all others the next row."""
    begin_key = 2 * start + 1
    end_key = np.maximum(2 * end, begin_key[rows] + 1)
    stops = np.arange(1, len(start) + 1)
    for code in np.unique(lane[rows]):
        first, last = np.searchsorted(lane, (code, code + 1))
        mine = lane[rows] == code
        stops[rows[mine]] = first + np.searchsorted(begin_key[first:last], end_key[mine])
    return stops


def _cut_in_order(lane: Int64s, start: Int64s, end: Int64s, lanes: Int64s) -> None:
    """Cut the ends of these lanes' intervals in place, one interval after another.

    Each cut decides what is still open for all that follow, so this cannot be done for all at once; lanes in which
    everything nests, which are nearly all, never come here.
    """
    open_ends: list[int] = []
    current = NONE
    for i in np.flatnonzero(np.isin(lane, lanes)).tolist():
        if lane[i] != current:
            current, open_ends = lane[i], []
        while open_ends and open_ends[-1] <= start[i]:
            open_ends.pop()
        if open_ends and end[i] > open_ends[-1]:
            end[i] = open_ends[-1]
        open_ends.append(int(end[i]))


def _spread(length: int, rows: Rows, values: Int64s) -> Int64s:
    column = np.full(length, NONE, dtype=np.int64)
    column[rows] = values
    return column


def _place(column: Int64s, rows: Rows, values: Int64s) -> Int64s:
    changed = column.copy()
    changed[rows] = values
    return changed
