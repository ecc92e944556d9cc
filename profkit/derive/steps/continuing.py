"""Where the lines of a located step ended before the step did: what goes on as before, in the loop that was running.

Locating lines stops after so many of them, often in the middle of a loop. The operators behind are those of its next
turns as long as they are the same, one by one, as those of the turn before. From the first that differs nothing is
known of them.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.steps.matching import combine_codes
from profkit.derive.steps.steps import Steps
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.values import distinct


def match_earlier_turns(trace: Trace, tree: Tree, steps: Steps, marked: Bools) -> Int32s:
    """Column over all events: for an operator of a located step behind its last ``marked`` one, that of an earlier
    turn of the same loop; `NONE` where there is none, and for all other events."""
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
    """For each element from ``end`` on the one of the turn before ``end`` that it repeats, up to the first that repeats
    none."""
    period = _period_at_end(kind[:end])
    if not period:
        return np.zeros(0, dtype=np.int64)
    like = end - period + np.arange(len(kind) - end) % period
    unlike = np.flatnonzero(kind[like] != kind[end:])
    return like[: unlike[0]] if unlike.size else like


def _period_at_end(kind: Int64s) -> int:
    """How many elements one turn of the loop has that the sequence ends in; 0 where its last two turns are not alike.

    A loop inside of a turn has a shorter period, but what repeats it is shorter too: the longest stretch at the end
    that stands earlier as well tells the turn, and where it stood last how long that is. Stretches double in length;
    two are the same if their halves are (Karp, Miller and Rosenberg, 1972)."""
    stretch, length, period = kind, 1, 0
    while len(stretch) > 1 and (alike := np.flatnonzero(stretch[:-1] == stretch[-1])).size:
        period = len(stretch) - 1 - int(alike[-1])
        if len(stretch) <= length:
            break
        stretch, length = combine_codes((stretch[:-length], stretch[length:])), 2 * length
    before, last = kind[-2 * period : -period], kind[-period:]
    return period if period and np.array_equal(before, last) else 0
