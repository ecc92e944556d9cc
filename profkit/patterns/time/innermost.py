"""Which of some nested events is the innermost one at any moment."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.trace.events import NONE, Int64s, Rows


class Innermost(Struct, frozen=True):
    """From each of the moments ``from_ns`` to the next, the innermost event is ``row``, `NONE` if there is none."""

    from_ns: Int64s
    row: Rows

    def at(self, times_ns: Int64s) -> Rows:
        """The innermost event at each of these times."""
        return np.append(self.row, NONE)[np.searchsorted(self.from_ns, times_ns, side="right") - 1]

    def stretches(self, start_ns: Int64s, end_ns: Int64s, most: int) -> tuple[Rows, Rows, Int64s]:
        """What these ranges, which may overlap, consist of: for each stretch the number of its range, its row, and its
        length. Of the ranges with the most stretches so many are left out that there are at most ``most`` in all."""
        first = np.searchsorted(self.from_ns, start_ns, side="right") - 1
        count = np.searchsorted(self.from_ns, end_ns) - first
        order = np.argsort(count, kind="stable")
        kept = np.sort(order[np.cumsum(count[order]) <= most])
        number = np.repeat(kept, count[kept])
        inside = np.arange(len(number)) - np.repeat(np.cumsum(count[kept]) - count[kept], count[kept])
        at = first[number] + inside
        edges = np.concatenate([[np.iinfo(np.int64).min], self.from_ns, [np.iinfo(np.int64).max]])
        begin, end = np.maximum(edges[at + 1], start_ns[number]), np.minimum(edges[at + 2], end_ns[number])
        return number, np.append(self.row, NONE)[at], end - begin


def find_innermost(facts: Facts, rows: Rows) -> Innermost:
    """For events of one thread. If several begin or end at one moment, what is innermost after all of that counts."""
    events, tree = facts.trace.events, facts.tree
    rows = rows[tree.end_ns[rows] > events.start_ns[rows]]
    around, depth = tree.nearest_ancestor(facts.trace.mask_of(rows), of=rows), tree.depth[rows].astype(np.int64)
    times_ns = np.concatenate([events.start_ns[rows], tree.end_ns[rows]])
    then = np.concatenate([rows, around])
    order = np.lexsort((np.concatenate([depth, -depth - 1]), times_ns))  # ends first, and the outermost of them last
    times_ns, then = times_ns[order], then[order]
    last = np.append(times_ns[1:] > times_ns[:-1], True) if len(rows) else np.zeros(0, dtype=bool)
    return Innermost(times_ns[last], then[last])
