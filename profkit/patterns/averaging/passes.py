"""Backward passes in which DistributedDataParallel averages gradients, and which of them do so for nothing."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.averaging.gradients import FORWARD, gradient_all_reduces, storing_gradients, within
from profkit.trace.events import Bools, Category, Int64s
from profkit.trace.statistics import among, distinct

_MOST = 0.5
"""Parameters without a gradient yet, such as those of a branch that is rarely taken, are assigned, not added."""


class Passes(Struct, frozen=True):
    """Backward passes that all-reduce gradients, as columns: ``start_ns`` of the forward pass before; ``end_ns``, when
    the next forward pass or the optimizer's step begins; ``window``, the number of optimizer steps before."""

    start_ns: Int64s
    end_ns: Int64s
    window: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)

    def of(self, times_ns: Int64s) -> Int64s:
        """The pass that each of these times is in, -1 outside all of them."""
        return within(self.start_ns, self.end_ns, times_ns)


def find_redundant(facts: Facts) -> Bools:
    """By pass: whether a later one before the same optimizer step makes it redundant, by storing as many gradients and
    adding them to those that are there. Models that step together have gradients of their own, which are assigned."""
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
    events, updates = facts.trace.events, facts.updates
    on_main = events.lane == facts.steps.main_lane
    forwards = facts.trace.named(FORWARD) & (events.category == Category.ANNOTATION) & on_main
    forward_ns, update_ns = np.sort(events.start_ns[forwards]), np.sort(updates.start_ns[on_main[updates.rows]])
    bounds = np.sort(np.concatenate([forward_ns, update_ns]))
    reduces = events.start_ns[gradient_all_reduces(facts)]
    at = distinct(np.searchsorted(bounds, reduces, side="right"))
    at = at[at > 0]
    at = at[among(bounds[at - 1], forward_ns)]
    begin, end = bounds[at - 1], np.append(bounds, np.iinfo(np.int64).max)[at]
    return Passes(begin, end, np.searchsorted(update_ns, begin, side="right"))
