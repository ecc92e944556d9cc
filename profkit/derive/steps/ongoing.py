"""The loop in which a recording ended: how the work of a program shows whose steps are too large to be recorded.

Of such a program there is what ran until the recording was full: imports, the making of models and data, and then some
rounds of a loop inside the first step. All of it as one step would drown these rounds in work that comes once.

The marks of a function's lines show the loop: the same lines come again, and still do when the recording ends. The
outermost one with enough rounds counts, as the loops inside it are parts of its rounds.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.timeline.intervals import stretches
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Category, Int64s, Rows, Trace
from profkit.trace.statistics import among

_LEAST_ROUNDS = 3
"""Lines that come twice may be two calls in a row."""
_LATE = 2.0
"""Times the longest round. A loop whose lines have not come for longer was over before the recording ended."""
_MOST_LEVELS = 64
"""Calls from line to line: the loops of a program are far above its innermost function."""


def find_ongoing(trace: Trace, tree: Tree, lane: int) -> Int64s | None:
    """When the rounds of that loop begin, on the thread ``lane``, in nanoseconds; None if no lines are marked or none
    repeat at the end.

    The search goes from the program's outermost lines into the last of them, and so on. Of the lines that repeat, the
    one that comes first begins the loop: of loops in one function, it is the outermost. A mark that follows another of
    its line goes on with it: the tracer was paused in between.
    """
    events = trace.events
    marks = (events.category == Category.LINE_MARK) & (events.lane == lane)
    rows = np.flatnonzero(marks)
    if rows.size < _LEAST_ROUNDS:
        return None
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    around, end_ns = tree.nearest_ancestor(marks, of=rows), int(events.start_ns[rows[-1]])
    level = rows[around == NONE]
    for _ in range(_MOST_LEVELS):
        if not level.size:
            break
        begins = np.flatnonzero(np.diff(events.site[level], prepend=NONE))
        if (starts := _first_repeating(trace, level[begins], end_ns)) is not None:
            return starts
        level = rows[among(around, level[begins[-1] :])]
    return None


def _first_repeating(trace: Trace, level: Rows, end_ns: int) -> Int64s | None:
    """When the line came that repeats until ``end_ns`` and comes before all others that do. What came last before a
    loop was over belongs to it, however rarely it comes."""
    order = np.argsort(trace.events.site[level], kind="stable")
    ends = np.flatnonzero(np.diff(trace.events.site[level][order])) + 1
    repeating = [trace.events.start_ns[level[order[one]]] for one in stretches(ends, len(order), _LEAST_ROUNDS)]
    over_ns = -1.0
    for starts in sorted(repeating, key=lambda starts: int(starts[0])):
        if starts[-1] <= over_ns:
            continue
        until_ns = starts[-1] + _LATE * np.diff(starts).max()
        if until_ns >= end_ns:
            return starts
        over_ns = max(over_ns, until_ns)
    return None
