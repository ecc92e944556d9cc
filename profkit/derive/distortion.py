"""What the recording itself added to the host's time, and where.

PyTorch's profiler does its work for an event before it takes the event's start and after it takes its end
(``onFunctionEnter`` and ``onFunctionExit`` in ``torch/csrc/autograd/profiler_kineto.cpp``), so that it shows as time
between events. How much it is in all is known where steps were also timed without a profiler; it is shared out evenly:
each event took up to the same time from the free stretch before it, and that time is such that all of it adds up to the
difference. So a step of a thousand small operators is put right by more than one of ten large ones.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.intervals import Intervals, union
from profkit.derive.steps import Steps
from profkit.derive.tree import Tree
from profkit.trace.events import Bools, Category, Int64s, Trace


def find_overhead(
    trace: Trace, tree: Tree, steps: Steps, lanes: Bools, reference_step_ns: tuple[int, ...]
) -> Intervals:
    """What the recording added to the measured steps on ``lanes``; nothing where no step was timed without it.

    ``lanes`` are the host threads that take turns, by code.
    """
    events = trace.events
    of_program = (tree.depth >= 0) & (events.category != Category.PAUSE)
    rows = np.flatnonzero(of_program & lanes[events.lane] & steps.in_measured(events.start_ns))
    if not reference_step_ns or not rows.size:
        return union(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    excess_ns = (steps.median_ns - float(np.median(reference_step_ns))) * steps.measured_count
    start_ns = events.start_ns[rows]
    before_ns = start_ns - _previous_edge(start_ns, tree.end_ns[rows], events.lane[rows].astype(np.int64))
    each_ns = _water_level(before_ns, excess_ns)
    return union(start_ns - np.minimum(before_ns, each_ns), start_ns)


def _previous_edge(start_ns: Int64s, end_ns: Int64s, lane: Int64s) -> Int64s:
    """The last start or end of an event of the same lane before each start; the start itself for the first."""
    count = len(start_ns)
    times, lanes = np.concatenate([start_ns, end_ns]), np.concatenate([lane, lane])
    is_start = np.arange(2 * count) < count
    order = np.lexsort((is_start, times, lanes))
    previous = times[order]
    previous[1:] = np.where(lanes[order][1:] == lanes[order][:-1], previous[:-1], previous[1:])
    found = np.empty(2 * count, dtype=np.int64)
    found[order] = previous
    return found[:count]


def _water_level(room_ns: Int64s, wanted_ns: float) -> int:
    """The level at which ``minimum(room, level)`` adds up to what is wanted: all room where there is not enough."""
    if wanted_ns <= 0:
        return 0
    room = np.sort(room_ns)
    filled = np.cumsum(room) + room * np.arange(len(room) - 1, -1, -1)
    at = int(np.searchsorted(filled, wanted_ns))
    if at == len(room):
        return int(room[-1])
    below = float(np.cumsum(room)[at - 1]) if at else 0.0
    return int((wanted_ns - below) / (len(room) - at))
