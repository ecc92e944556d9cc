"""Lines for the operators of a located step that come after its last marked line.

Locating stops after a maximum of lines, often in the middle of a loop. The operators that follow are taken for further
turns of that loop while they equal, one by one, those of the turn before. From the first difference on, nothing is
known.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.steps.matching import combine_codes
from profkit.derive.steps.steps import Steps
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.values import distinct


def match_earlier_turns(trace: Trace, tree: Tree, steps: Steps, marked: Bools) -> Int32s:
    """Column over all events: for an operator that follows the last ``marked`` one of a located step, the same operator
    of an earlier turn of the loop. `NONE` if there is none, and for all other events."""
    events = trace.events
    operators = events.category == Category.OPERATOR
    step = steps.index_of(events.start_ns)
    inside = np.flatnonzero(operators & (step >= 0) & steps.located[step.clip(min=0)])
    group = combine_codes((step[inside], events.lane[inside]))
    earlier = np.full(len(events), NONE, dtype=np.int32)
    for one in distinct(group[marked[inside]]).tolist():
        rows = inside[group == one]
        rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
        end = int(np.flatnonzero(marked[rows])[-1]) + 1
        if end == len(rows):
            continue
        around = tree.nearest_ancestor(operators, of=rows)
        name_around = np.where(around >= 0, events.name_code[around], np.int32(NONE))
        like = _go_on(combine_codes((events.name_code[rows], name_around)), end)
        earlier[rows[end : end + len(like)]] = rows[like]
    return earlier


def _go_on(kind: Int64s, end: int) -> Rows:
    """For each element from ``end`` on, the element of the turn before ``end`` that it repeats, up to the first that
    repeats none."""
    period = _period_at_end(kind[:end])
    if not period:
        return np.zeros(0, dtype=np.int64)
    like = end - period + np.arange(len(kind) - end) % period
    unlike = np.flatnonzero(kind[like] != kind[end:])
    return like[: unlike[0]] if unlike.size else like


def _period_at_end(kind: Int64s) -> int:
    """The number of elements in one turn of the loop that the sequence ends in; 0 if its last two turns differ.

    A loop inside a turn has a shorter period, but its repeats make a shorter stretch. So the longest final stretch that
    also occurs earlier decides, and the distance to its last earlier occurrence is the period. Stretches double in
    length; two are equal if their halves are (Karp, Miller and Rosenberg, 1972)."""
    stretch, length, period = kind, 1, 0
    while len(stretch) > 1 and (alike := np.flatnonzero(stretch[:-1] == stretch[-1])).size:
        period = len(stretch) - 1 - int(alike[-1])
        if len(stretch) <= length:
            break
        stretch, length = combine_codes((stretch[:-length], stretch[length:])), 2 * length
    before, last = kind[-2 * period : -period], kind[-period:]
    return period if period and np.array_equal(before, last) else 0
