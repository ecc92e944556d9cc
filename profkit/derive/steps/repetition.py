"""The period of a sequence of codes: how a loop shows in a trace without annotations."""

from __future__ import annotations

import numpy as np

from profkit.derive.timeline.intervals import stretches
from profkit.trace.events import Int32s, Int64s
from profkit.trace.statistics import median

_MIN_REPEATS = 3
"""Any two occurrences make one distance; only a third can confirm it."""
_MIN_COVERAGE = 0.6
"""More than half, or two loops in a row could both be the program's. The rest is set-up and what follows."""
_MIN_REGULAR = 0.8
"""One round in five may hold something more, such as an evaluation or a log."""


def find_period(codes: Int32s, start_ns: Int64s, span_ns: int) -> Int64s | None:
    """The start times of the repeats, one more than there are whole repeats; None if nothing repeats.

    A code is an anchor if at least `_MIN_REPEATS` of its occurrences are equally far apart, and its repeats cover most
    of the sequence and most of ``span_ns``. The anchor with the longest period is the outermost loop. Among several
    with that period, the one that occurs first begins it.
    """
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    best: tuple[int, int] | None = None
    starts: Int64s | None = None
    for at in (order[one] for one in stretches(bounds, len(order), _MIN_REPEATS)):
        if len(at) > len(codes) // 2 + 1:
            continue
        gaps = np.diff(at)
        period = int(median(gaps))
        regular = float((gaps == period).mean()) >= _MIN_REGULAR
        covers = period * len(at) >= _MIN_COVERAGE * len(codes)
        lasts = start_ns[at[-1]] - start_ns[at[0]] >= _MIN_COVERAGE * span_ns * (1 - 1 / len(at))
        if regular and covers and lasts and (best is None or (period, -int(at[0])) > best):
            best = (period, -int(at[0]))
            starts = start_ns[at]
    return starts
