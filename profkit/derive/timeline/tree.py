"""The call tree of the host threads: which event encloses which, and the time each spends in itself."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.nesting import BATCH, Nested, first_behind, nest
from profkit.derive.timeline.outliving import end_at_ranges, tell_enclosing, tell_ranges
from profkit.trace.events import NONE, Bools, Category, Events, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import constant

_HOST = (
    Category.OPERATOR,
    Category.ANNOTATION,
    Category.PYTHON,
    Category.RUNTIME,
    Category.MEMORY,
    Category.LINE_MARK,
    Category.PAUSE,
    Category.HOST_MARK,
    Category.COMPILED_CODE,
)

_MANY_WANTED_SHARE = 0.25
"""If more than this share of all events is wanted, they are many."""


class Tree(Struct, frozen=True):
    """Columns over all events of the trace. Events that are not on a host thread have depth and parent `NONE`.

    The events are in preorder: the descendants of row ``i`` are the rows from ``i + 1`` up to ``stop[i]``, exclusive,
    without those ``left_out``, which are on host threads but not in the tree. ``end_ns`` is cut where events overlap
    without nesting; ``overlapping`` counts these. A Python frame that a range outlives ends where the range begins (see
    `profkit.derive.timeline.outliving`) and does not count.
    """

    parent: Int32s
    depth: Int32s
    stop: Int32s
    end_ns: Int64s
    left_out: Rows
    overlapping: int

    def self_ns(self, events: Events) -> Int64s:
        """The time of each event without that of the events directly below it."""
        own = self.end_ns - events.start_ns
        inside = np.flatnonzero(self.parent >= 0)
        np.subtract.at(own, self.parent[inside], self.end_ns[inside] - events.start_ns[inside])
        return own.clip(min=0, out=own)

    def nearest_ancestor(self, wanted: Bools, include_self: bool = False, of: Rows | Int32s | None = None) -> Rows:
        """The row of the innermost ancestor in ``wanted``, or `NONE`, of each event or of each of the rows ``of``."""
        if of is None and not wanted.any():
            return constant(NONE, np.int64, len(wanted))  # many a recording has no frames, marks or compiled code
        if np.count_nonzero(wanted) <= _MANY_WANTED_SHARE * len(wanted):
            found = self._search(wanted, of)
        elif of is None:
            found = self.climb(wanted).astype(np.int64)
        else:
            found = self._climb_from(wanted, of)
        if include_self and of is None:
            found[wanted] = np.flatnonzero(wanted)
        elif include_self and of is not None:
            found = np.where(wanted[of], of, found)
        return found

    def climb(self, wanted: Bools) -> Int32s:
        """`nearest_ancestor` of each event in half the memory, fast if many are wanted.

        All events of a batch climb at once. One that meets an unwanted event continues from where that event has
        climbed to by then, so the number of rounds is the logarithm of the depth. Ancestors in earlier batches are
        done.
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

    def _climb_from(self, wanted: Bools, of: Rows | Int32s) -> Rows:
        """`nearest_ancestor` of some events, fast if many are wanted, as most then have one directly above them."""
        above = self.parent[of].astype(np.int64)
        climbing = np.flatnonzero((above >= 0) & ~wanted[above])
        while climbing.size:
            reached = self.parent[above[climbing]]
            above[climbing] = reached
            climbing = climbing[(reached >= 0) & ~wanted[reached]]
        return above

    def _search(self, wanted: Bools, of: Rows | Int32s | None) -> Rows:
        """`nearest_ancestor`, fast if few are wanted."""
        rows = self._in_tree(wanted)
        if of is None:
            return self._spread(rows)
        found = self._innermost(rows, of)
        found[self.depth[of] < 0] = NONE
        return found

    def _spread(self, rows: Rows) -> Rows:
        """For each event the innermost of ``rows`` above it.

        It only changes directly after one of them, and where one ends: there to the next one above. If several end
        there, the outermost of them decides.
        """
        places = np.concatenate([rows + 1, self.stop[rows[::-1]]])
        above = np.concatenate([rows, self._innermost(rows, rows)[::-1]])
        order = np.argsort(places, kind="stable")
        lengths = np.diff(places[order], prepend=0, append=len(self.parent))
        found: Rows = np.repeat(np.append(NONE, above[order]), lengths)
        found[self.left_out] = NONE
        return found

    def _innermost(self, rows: Rows, of: Rows | Int32s) -> Rows:
        """The innermost of ``rows`` above each of the rows ``of``.

        For an event below ``c`` of them, that is the last one before it that is itself below ``c - 1``. One search in
        the sorted keys ``c * n + row`` finds all of them.
        """
        n, found = len(self.parent), np.full(len(of), NONE, dtype=np.int64)
        if not rows.size:
            return found
        ends = np.sort(self.stop[rows], kind="stable")  # fast on what is nearly sorted
        above = np.arange(len(rows)) - np.searchsorted(ends, rows.astype(ends.dtype), side="right")
        keys = np.sort(above * n + rows, kind="stable")
        of_all = of.astype(ends.dtype, copy=False)
        counts = np.searchsorted(rows.astype(ends.dtype), of_all) - np.searchsorted(ends, of_all, side="right")
        below = np.flatnonzero(counts > 0)
        found[below] = keys[np.searchsorted(keys, (counts[below] - 1) * n + of[below]) - 1] % n
        return found

    def _in_tree(self, wanted: Bools) -> Rows:
        rows = np.flatnonzero(wanted)
        return rows[self.depth[rows] >= 0]

    def under(self, wanted: Bools) -> Bools:
        """Which events are in ``wanted`` or have an ancestor there."""
        first = self._outermost(self._in_tree(wanted))
        bounds = np.stack([first, self.stop[first]], axis=1).ravel()
        inside = np.repeat(np.arange(len(bounds) + 1) % 2 == 1, np.diff(bounds, prepend=0, append=len(wanted)))
        inside[self.left_out] = False
        inside |= wanted
        return inside

    def outermost(self, wanted: Bools) -> Bools:
        """Those in ``wanted`` that have no ancestor there."""
        found, rows = wanted.copy(), self._in_tree(wanted)
        found[rows] = False
        found[self._outermost(rows)] = True
        return found

    def _outermost(self, rows: Rows) -> Rows:
        """Those of ``rows`` that are no descendants of another of them."""
        reach = np.maximum.accumulate(self.stop[rows])
        outer = np.ones(len(rows), dtype=bool)
        np.greater_equal(rows[1:], reach[:-1], out=outer[1:])
        return rows[outer]

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


def build_tree(trace: Trace) -> Tree:
    """Nest the host events of ``trace``."""
    events, count = trace.events, len(trace.events)
    depth, parent = np.full(count, NONE, dtype=np.int32), np.full(count, NONE, dtype=np.int32)
    columns = Nested(events.end_ns, depth, parent, np.arange(1, count + 1, dtype=np.int32))
    wanted = trace.in_categories(*_HOST)
    frames, ranges = tell_enclosing(trace), tell_ranges(trace)
    bounds = np.searchsorted(events.lane, np.arange(len(trace.lanes) + 1))
    overlapping = 0
    for lane, first, last in zip(trace.lanes, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if lane.on_device:
            continue
        mine = slice(first, last)
        end_at_ranges(
            events.start_ns[mine], columns.end[mine], np.flatnonzero(frames[mine]), np.flatnonzero(ranges[mine])
        )
        if wanted[mine].all():
            overlapping += nest(events.start_ns[mine], columns.part(mine), first)
        else:
            overlapping += _nest_some(events.start_ns[mine], columns.part(mine), first, np.flatnonzero(wanted[mine]))
    on_host = np.array([not lane.on_device for lane in trace.lanes], dtype=bool)
    left_out = np.flatnonzero(~wanted)
    left_out = left_out[on_host[events.lane[left_out]]]
    return Tree(parent, depth, columns.stop, columns.end, left_out, overlapping)


def _nest_some(start: Int64s, lane: Nested, first: int, rows: Rows) -> int:
    """Nest these events of a lane whose first event is ``first``. Returns how many ends were cut."""
    some = lane.part(rows)
    overlapping = nest(start[rows], some)
    lane.end[rows], lane.depth[rows] = some.end, some.depth
    lane.parent[rows] = np.where(some.parent >= 0, first + rows[some.parent], NONE)
    # rows are counted with the events left out: what begins at the end or later is not below
    lane.stop[rows] = first + first_behind(start, start[rows], some.end)
    return overlapping
