"""Time that the machine took while an operator ran, which an edit does not give back.

If another program keeps a thread from its CPU for some milliseconds, these pass in whatever operator it is running.
Steps that run the same operators give back about the same time; whatever one step would give back beyond that is the
machine's.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import Intervals
from profkit.savings.edits import Edit
from profkit.trace.events import Category
from profkit.trace.statistics import median

LEAST_STEPS = 3
MOST_TIMES_MEDIAN = 3.0
"""The most that one step may give back, in medians. Inputs of other lengths seldom change it by more."""


def outliers_ns(facts: Facts, edit: Edit, removed: Intervals) -> int:
    """How much of the time that the edit takes out of the host's timeline is not the operators' own.

    0 with a GPU, whose work hides such stops. Also 0 for edits of anything that may well take long in a single step,
    such as waits for batches, which workers hand over several at a time.
    """
    events, steps = facts.trace.events, facts.steps
    number = np.flatnonzero(steps.measured)
    are_operators = (events.category[edit.rows] == Category.OPERATOR) & ~facts.loading[edit.rows]
    if facts.device.present or len(number) < LEAST_STEPS or not are_operators.all():
        return 0
    step = steps.index_of(np.concatenate([events.start_ns[edit.rows], edit.span_start_ns]))
    counts = np.bincount(step[step >= 0], minlength=len(steps))[number]
    if not counts.size or counts.min() != counts.max():
        return 0
    own = removed.minus(facts.disturbance.where)
    saved = own.covered_before(steps.end_ns[number]) - own.covered_before(steps.start_ns[number])
    return int((saved - MOST_TIMES_MEDIAN * median(saved)).clip(min=0).sum())
