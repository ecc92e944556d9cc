"""Backward passes in which DistributedDataParallel averages gradients, and which of them do so for nothing."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.evidence.averaging.gradients import FORWARD, gradient_all_reduces, storing_gradients, within
from profkit.trace.events import Bools, Category, Int64s
from profkit.trace.values import among, distinct

_MOST = 0.5
"""Parameters without a gradient yet, such as those of a branch that is taken now and then, are assigned, not added."""


class Passes(Struct, frozen=True):
    """Backward passes that all-reduce gradients. Columns over them: ``start_ns`` of the forward pass before, and
    ``end_ns``, when the next forward pass or the optimizer's step begins; ``window`` counts the optimizers' steps
    before."""

    start_ns: Int64s
    end_ns: Int64s
    window: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)

    def of(self, times_ns: Int64s) -> Int64s:
        """The pass that each of these times lies in, -1 outside all."""
        return within(self.start_ns, self.end_ns, times_ns)


def find_redundant(facts: Facts) -> Bools:
    """By pass: whether a later one before the same step of an optimizer makes it redundant, which stores as many
    gradients, and adds them to what is there. Models that step together have gradients of their own, which are
    assigned."""
    passes = find_passes(facts)
    window = passes.window
    storing = np.flatnonzero(storing_gradients(facts))
    adding = facts.tree.holding(facts.trace.named("aten::add_"))[storing]
    of_pass = passes.of(facts.trace.events.start_ns[storing])
    stored = np.bincount(of_pass[of_pass >= 0], minlength=len(window))
    added = np.bincount(of_pass[(of_pass >= 0) & adding], minlength=len(window))
    redundant = np.zeros(len(window), dtype=bool)
    for code in distinct(window):
        mine = np.flatnonzero(window == code)
        adds = mine[added[mine] >= _MOST * stored[mine]]
        redundant[mine] = [bool((stored[adds[adds > one]] == stored[one]).any()) for one in mine]
    return redundant


@derived_once
def find_passes(facts: Facts) -> Passes:
    forwards = _starts(facts, facts.trace.named(FORWARD))
    updates = facts.updates
    steps = np.sort(updates.start_ns[facts.trace.events.lane[updates.rows] == facts.steps.main_lane])
    bounds = np.sort(np.concatenate([forwards, steps]))
    reduces = facts.trace.events.start_ns[gradient_all_reduces(facts)]
    at = distinct(np.searchsorted(bounds, reduces, side="right"))
    at = at[at > 0]
    at = at[among(bounds[at - 1], forwards)]
    begin, end = bounds[at - 1], np.append(bounds, np.iinfo(np.int64).max)[at]
    return Passes(begin, end, np.searchsorted(steps, begin, side="right"))


def _starts(facts: Facts, wanted: Bools) -> Int64s:
    """When the wanted ranges of the main thread begin, in order."""
    mine = wanted & (facts.trace.events.category == Category.ANNOTATION)
    return np.sort(facts.trace.events.start_ns[mine & (facts.trace.events.lane == facts.steps.main_lane)])
