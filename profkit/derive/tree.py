"""The call tree of the host threads: which event encloses which, and the time each spends in itself."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.nesting import BATCH, nest
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.values import distinct

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

_MANY = 0.25
"""The share of all events from which on those that are wanted are many: then most have one right above them."""


class Tree(Struct, frozen=True):
    """Columns over all events of the trace; events that are not on a host thread have depth and parent `NONE`.

    The events stand in preorder, so the descendants of row ``i`` are the rows from ``i + 1`` up to, not with,
    ``stop[i]``. ``end_ns`` is cut where slices overlap without nesting; ``overlapping`` counts those.
    """

    parent: Int32s
    depth: Int32s
    stop: Int32s
    end_ns: Int64s
    self_ns: Int64s
    overlapping: int

    def nearest_ancestor(self, wanted: Bools, include_self: bool = False, of: Rows | Int32s | None = None) -> Rows:
        """For each event, or each of the rows ``of``, the row of its innermost ancestor in ``wanted``, or `NONE`."""
        if np.count_nonzero(wanted) > _MANY * len(wanted):
            found = (self.climb(wanted) if of is None else self.climb(wanted)[of]).astype(np.int64)
        else:
            found = self._search(wanted, of)
        if include_self and of is None:
            found[wanted] = np.flatnonzero(wanted)
        elif include_self and of is not None:
            found = np.where(wanted[of], of, found)
        return found

    def climb(self, wanted: Bools) -> Int32s:
        """`nearest_ancestor` of each event in half the memory, fast where many are wanted.

        All of a batch climb at once: who meets an event that is not wanted goes on from where that one has come to by
        then, so that the number of rounds is the logarithm of the depth. Ancestors stand before, so they are done.
        """
        above = self.parent.copy()
        for first in range(0, len(above), BATCH):
            batch = above[first : first + BATCH]
            climbing = np.flatnonzero((batch >= 0) & ~wanted[batch])
            while climbing.size:
                reached = above[batch[climbing]]
                batch[climbing] = reached
                climbing = climbing[(reached >= 0) & ~wanted[reached]]
        return above

    def _search(self, wanted: Bools, of: Rows | Int32s | None) -> Rows:
        """`nearest_ancestor`, fast where few are wanted.

        An event with ``c`` wanted ancestors has as the innermost the last row before it that is itself wanted and has
        ``c - 1``: found for all of a batch at once by searching the sorted keys ``c * n + row``.
        """
        n, rows = len(wanted), np.flatnonzero(wanted & (self.depth >= 0))
        found = np.full(n if of is None else len(of), NONE, dtype=np.int64)
        if not rows.size:
            return found
        above = self._count_above(wanted)
        keys = np.sort(above[rows].astype(np.int64) * n + rows)
        for first in range(0, len(found), BATCH):
            part = slice(first, min(first + BATCH, len(found)))
            asked = np.arange(part.start, part.stop) if of is None else of[part]
            below = np.flatnonzero(above[asked] > 0)
            sought = (above[asked[below]].astype(np.int64) - 1) * n + asked[below]
            found[part][below] = keys[np.searchsorted(keys, sought) - 1] % n
        return found

    def under(self, wanted: Bools) -> Bools:
        """Which events are in ``wanted`` or have an ancestor there."""
        return wanted | self._is_below(wanted) if wanted.any() else wanted.copy()

    def outermost(self, wanted: Bools) -> Bools:
        """Those in ``wanted`` that have no ancestor there."""
        return wanted & ~self._is_below(wanted) if wanted.any() else wanted.copy()

    def total_under(self, values: Int64s) -> Int64s:
        """Per event the sum of ``values`` over itself and its descendants; its own value off the host threads."""
        if not values.any():
            return values.copy()
        inside = self.depth >= 0
        sums = np.concatenate([[0], np.cumsum(np.where(inside, values, 0))])
        return np.where(inside, sums[self.stop] - sums[:-1], values)

    def holding(self, wanted: Bools) -> Bools:
        """Which events are in ``wanted`` or have a descendant there."""
        if not wanted.any():
            return wanted.copy()
        inside = self.depth >= 0
        counts = np.zeros(len(wanted) + 1, dtype=np.int32)
        np.cumsum(wanted & inside, out=counts[1:])
        held: Bools = (inside & (counts[self.stop] > counts[:-1])) | wanted
        return held

    def _is_below(self, wanted: Bools) -> Bools:
        """Which events have an ancestor in ``wanted``: one before them whose descendants reach beyond them."""
        on_host = self.depth >= 0
        reach = np.where(wanted & on_host, self.stop, 0)
        np.maximum.accumulate(reach, out=reach)
        below = np.zeros(len(wanted), dtype=bool)
        np.greater(reach[:-1], np.arange(1, len(wanted), dtype=reach.dtype), out=below[1:])
        below &= on_host
        return below

    def _count_above(self, wanted: Bools) -> Int32s:
        """For each event how many of its ancestors are wanted."""
        rows = np.flatnonzero(wanted & (self.depth >= 0))
        change = np.zeros(len(self.parent) + 1, dtype=np.int32)
        if not rows.size:
            return change[:-1]
        change[rows + 1] += 1
        np.subtract.at(change, self.stop[rows], np.int32(1))  # of one type: 20 times as fast
        above: Int32s = np.cumsum(change[:-1], dtype=np.int32)
        above[self.depth < 0] = 0
        return above


def build_tree(trace: Trace) -> Tree:
    """Nest the host events of ``trace``."""
    events = trace.events
    on_host = np.array([not lane.on_device for lane in trace.lanes], dtype=bool)
    rows = np.flatnonzero(trace.in_categories(*_HOST) & on_host[events.lane])
    lane, start, end = events.lane[rows], events.start_ns[rows], events.end_ns[rows]
    overlapping, depth, parent = nest(lane, start, end)
    length = np.subtract(end, start, out=start)  # the starts are not needed any more
    own = length.copy()
    inside = np.flatnonzero(parent >= 0)
    np.subtract.at(own, parent[inside], length[inside])
    parent[inside] = rows[parent[inside]]
    del start, length, inside
    return Tree(
        parent=_spread(len(events), rows, parent),
        depth=_spread(len(events), rows, depth),
        stop=_stops(events.lane, events.start_ns, lane, rows, end),
        self_ns=_place(events.duration_ns, rows, own.clip(min=0, out=own)),
        end_ns=_place(events.end_ns, rows, end),
        overlapping=overlapping,
    )


def _stops(lane: Int32s, start: Int64s, lane_of_rows: Int32s, rows: Rows, end: Int64s) -> Int32s:
    """For each of ``rows`` the first row of its lane that begins at its end or later; for all others the next row."""
    stops = np.arange(1, len(start) + 1, dtype=np.int32)
    for code in distinct(lane_of_rows):
        first, last = np.searchsorted(lane, (code, code + 1))
        one, other = np.searchsorted(lane_of_rows, (code, code + 1))
        mine = rows[one:other]
        begins = start[first:last]
        # what takes no time ends after what begins with it
        until = np.maximum(end[one:other], start[mine] + 1)
        stops[mine] = first + np.searchsorted(begins, until)
    return stops


def _spread(length: int, rows: Rows, values: Int32s) -> Int32s:
    column = np.full(length, NONE, dtype=np.int32)
    column[rows] = values
    return column


def _place(column: Int64s, rows: Rows, values: Int64s) -> Int64s:
    changed = column.copy()
    changed[rows] = values
    return changed
