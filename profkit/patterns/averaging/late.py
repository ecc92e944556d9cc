"""Gradients that the program itself averages only after the backward pass."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.averaging.exchanged import all_reduces, on_trace_clock, own_table
from profkit.patterns.averaging.gradients import gradient_all_reduces, gradient_sizes, stored_gradients
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.trace.events import Bools, Int64s

_MOST = 0.5
"""Of the bytes of a step's gradients: less is a metric, or the parameters that a sharded layer shares."""


class LateAverages(Struct, frozen=True):
    """Columns over the steps in which it was found: the step's index, when its first and its last gradient are stored,
    and the bytes of its gradients. ``rows`` are the table's collectives, ``of`` the place in those columns of each."""

    step: Int64s
    begin_ns: Int64s
    end_ns: Int64s
    size_bytes: Int64s
    rows: Int64s
    of: Int64s


@derived_once
def find_late_averages(facts: Facts) -> LateAverages:
    """All-reduces between a step's last gradient and the optimizer that carry most of the bytes of the gradients."""
    if not len(find_exchanges(facts)):
        return LateAverages(*(np.zeros(0, dtype=np.int64) for _ in LateAverages.__struct_fields__))
    taken = own_table(facts).collectives
    stored = stored_gradients(facts)
    count = len(facts.steps)
    step = facts.step_of(stored)
    stored, step = stored[step >= 0], step[step >= 0]
    begin = np.full(count, np.iinfo(np.int64).max)
    end, size = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.minimum.at(begin, step, facts.trace.events.start_ns[stored])
    np.maximum.at(end, step, facts.tree.end_ns[stored])
    of_each = gradient_sizes(facts, stored)
    np.add.at(size, step, of_each)
    size[step[of_each == 0]] = 0  # a size known for part of a step is unknown for the step
    rows = np.flatnonzero(all_reduces(facts))
    issue_ns = on_trace_clock(facts, taken.issue_ns[rows])
    at = facts.steps.index_of(issue_ns)
    rows, issue_ns, at = rows[at >= 0], issue_ns[at >= 0], at[at >= 0]
    late = (issue_ns >= end[at]) & (end[at] > 0) & ~_after_update(facts, issue_ns, end[at])
    size[at[late & (taken.size_bytes[rows] < 0)]] = 0
    sent = np.bincount(at[late], taken.size_bytes[rows[late]].clip(min=0), minlength=count)
    size = _as_in_known_steps(
        size,
        np.where((size > 0) & (sent >= _MOST * size), size, 0),
        np.bincount(step, minlength=count),
        np.bincount(at[late], minlength=count),
    )
    found = np.flatnonzero(size)
    mine = late & np.isin(at, found)
    return LateAverages(found, begin[found], end[found], size[found], rows[mine], np.searchsorted(found, at[mine]))


def _as_in_known_steps(size: Int64s, found: Int64s, stored: Int64s, sent: Int64s) -> Int64s:
    """By step the bytes of gradients that are averaged late. A step recorded without shapes counts as one with shapes
    that stores as many gradients and sends as many messages."""
    known = {(int(stored[at]), int(sent[at])): int(found[at]) for at in np.flatnonzero(size)}
    unknown = np.flatnonzero((size == 0) & (stored > 0))
    reported = found.copy()
    reported[unknown] = [known.get((int(stored[at]), int(sent[at])), 0) for at in unknown]
    return reported


def _after_update(facts: Facts, times_ns: Int64s, since_ns: Int64s) -> Bools:
    """Whether an optimizer has begun its step since then."""
    starts = np.sort(facts.updates.start_ns)
    return np.searchsorted(starts, times_ns) > np.searchsorted(starts, since_ns)


def is_averaged_within(facts: Facts) -> Bools:
    """By step: whether all-reduces ran while gradients were stored, as DistributedDataParallel's do."""
    found = np.zeros(len(facts.steps), dtype=bool)
    step = facts.step_of(gradient_all_reduces(facts))
    found[step[step >= 0]] = True
    return found
