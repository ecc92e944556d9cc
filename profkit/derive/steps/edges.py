"""The stretches of host time between neighbouring starts and ends of events, in which a recording's own work lies:
what is added to the host is shared out among them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.tree import Tree
from profkit.trace.events import Category, Float64s, Int64s, Rows, Trace


class Stretches(Struct, frozen=True):
    """Each from one edge of a lane's events to the next. ``weight`` counts how many of the two have the profiler's work
    on that side: an end before the stretch, a start after it. ``inside`` is the innermost event around it, or -1."""

    start_ns: Int64s
    end_ns: Int64s
    weight: Int64s
    inside: Rows

    @property
    def room_ns(self) -> Int64s:
        return self.end_ns - self.start_ns


def between_edges(trace: Trace, tree: Tree, rows: Rows, with_marked_python: bool = False) -> Stretches:
    """Those that have the profiler's work at an edge. With ``with_marked_python`` also what lies between a line's mark
    and its end, which is Python that is traced."""
    events, count = trace.events, len(rows)
    both = np.concatenate([rows, rows])
    times = np.concatenate([events.start_ns[rows], tree.end_ns[rows]])
    is_start = np.arange(2 * count) < count
    order = np.lexsort((is_start, times, events.lane[both]))
    times, both, is_start = times[order], both[order], is_start[order]
    before, lanes = both[:-1], events.lane[both]
    weight = is_start[1:].astype(np.int64) + ~is_start[:-1]
    if with_marked_python:
        weight += (weight == 0) & (events.category[before] == Category.LINE_MARK)
    between = (lanes[1:] == lanes[:-1]) & (weight > 0) & (times[1:] > times[:-1])
    inside = np.where(is_start[:-1], before, tree.parent[before])
    return Stretches(times[:-1][between], times[1:][between], weight[between], inside[between])


def water_level(room_ns: Int64s, weight: Int64s | Float64s, wanted_ns: float) -> float:
    """The level at which ``minimum(room, weight * level)`` adds up to what is wanted; the highest if there is too
    little room."""
    if wanted_ns <= 0 or not len(room_ns):
        return 0.0
    order = np.argsort(room_ns / weight)
    room, weight = room_ns[order], weight[order]
    full_at = room / weight
    filled_before = np.cumsum(room) - room
    open_weight = np.cumsum(weight[::-1])[::-1]
    at = int(np.searchsorted(filled_before + full_at * open_weight, wanted_ns))
    if at == len(room):
        return float(full_at[-1])
    return (wanted_ns - float(filled_before[at])) / float(open_weight[at])
