"""Each distribution that is made, and each value whose probability is asked for, is checked element by element.

What it detects
In every measured step: the checks that `torch.distributions` makes of its arguments and values, unless it is told not
to. Each compares a tensor with the bounds of its constraint and then reads in Python whether all elements fit. The rule
knows them by `aten::_is_all_true`, which little else calls, and by the comparisons before it.

Why is this bad?
A policy or a decoder makes one or two distributions per call of the network, with two to five checks each. One is three
to eight small operators and a number that is read in Python. A small network takes no longer than that. On a GPU each
check also waits until the device has run all queued work.

Example
    policy = Normal(self.mean(state), self.deviation)
    action = policy.sample()
    return action, policy.log_prob(action)

Use instead
    policy = Normal(self.mean(state), self.deviation, validate_args=False)
    action = policy.sample()
    return action, policy.log_prob(action)

How the saving is estimated
The step is replayed without the checks' operators, the Python between them and the last 12 µs of Python before each
and, on a GPU, without the waits. Where the only recorded step is one whose lines were marked, the price is rough and
the severity low: marks make Python look longer than it is. It is an opportunity, and no fault: without the checks a
NaN, or a value outside of the distribution's support, raises no error.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns import call_site, in_most_steps, name_lines, sites_by_time, times_per_step
from profkit.rules.base import (
    LOW_FROM,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    rule,
)
from profkit.savings import combine, drop_operators, shrink_spans
from profkit.savings.step_time import as_in_step_ns
from profkit.trace import NONE, Bools, Int64s, Rows

_LAST = "aten::_is_all_true"
_READ = "aten::is_nonzero"
_COMPARING = ("eq", "ne", "lt", "le", "gt", "ge", "__and__", "__or__", "bitwise_and", "bitwise_or", "all", "remainder")
_BETWEEN = ("reshape", "view", "_is_all_true", "is_nonzero")
"""These never begin a check."""
_BEFORE_NS = 12_000
"""What Python does before a check's first operator: 13 µs in two checks of a normal distribution, and 20 µs before that
of a value, whose shape is compared first (measured)."""
_MOST_LINES = 3
_UNCERTAINTY = 0.3
"""What Python does before the first comparison is a guess, and what the program itself compares just before counts."""
_UNCERTAINTY_TRACED = 0.6
"""The tracer takes a microsecond of each call of a library, which may be more than the call itself."""


class _Checks(Struct, frozen=True):
    """The checks of the measured steps, in time order: the last comparison of each, from when to when it lasts, and
    the outermost operators of all of them."""

    last: Rows
    start_ns: Int64s
    end_ns: Int64s
    operators: Rows


@rule(Kind.OPPORTUNITY, Need.OPERATORS)
def distribution_checks(facts: Facts) -> Suspicions:
    """One finding for all of them, as one setting ends them."""
    checks = _find(facts)
    if not in_most_steps(facts, checks.last):
        return
    count = times_per_step(facts, checks.last)
    took_ns = facts.steps.per_step_ns(int((checks.end_ns - checks.start_ns).sum()))
    is_traced = bool(facts.steps.located.all())
    uncertainty = _UNCERTAINTY_TRACED if is_traced else _UNCERTAINTY
    spans = shrink_spans(checks.start_ns, checks.end_ns, 0, uncertainty)
    waits = "; on a GPU, each would be a wait for the device" if not facts.device.present else ""
    yield Suspicion(
        message=f"Arguments and values of distributions are checked {format_count(count, 'time')} a step, which takes "
        f"{format_time(as_in_step_ns(facts, took_ns))}{waits}.",
        fix="Once the program works, pass `validate_args=False` to its distributions, or turn all checks off with "
        "`torch.distributions.Distribution.set_default_validate_args(False)`. A NaN then raises no error here.",
        edit=combine([drop_operators(facts, checks.operators, uncertainty), spans]),
        severity=Severity.LOW if is_traced else None,
        worth=LOW_FROM,
        confidence=0.9,
        count=count,
        places=name_lines(facts, _sites(facts, checks.last)),
        evidence={"checks_per_step": count, "check_ns_per_step": took_ns},
    )


def _sites(facts: Facts, rows: Rows) -> list[int]:
    """The program's lines that make the distributions or ask them, those with most checks' time first."""
    known = [site for site in sites_by_time(facts, rows) if call_site(facts, site) is not None]
    return known[:_MOST_LINES]


def _find(facts: Facts) -> _Checks:
    """A check is a run of comparisons that ends with `_LAST`, and the reading of its result in Python. Of two that
    follow each other, what lies between belongs to the second if it is no longer than the first: Python goes from
    constraint to constraint."""
    trace, tree, rows = facts.trace, facts.tree, _outermost(facts)
    last = np.flatnonzero(trace.named(_LAST)[rows])
    if not last.size:
        return _Checks(rows[:0], rows[:0], rows[:0], rows[:0])
    lane, step = trace.events.lane[rows], facts.step_of(rows)
    together = np.append(False, (lane[1:] == lane[:-1]) & (step[1:] == step[:-1]))
    following = (last + 1).clip(max=len(rows) - 1)
    is_read = trace.named(_READ)[rows[following]] & together[following] & (following > last)
    end = np.where(is_read, following, last)
    begin, continues = _begins(facts, rows, together, last, end)
    start_ns, end_ns = trace.events.start_ns[rows[begin]], tree.end_ns[rows[end]]
    near = start_ns[1:] - end_ns[:-1] <= end_ns[:-1] - start_ns[:-1]
    start_ns = (start_ns - _BEFORE_NS).clip(min=_last_end_ns(facts, rows, together, begin))
    start_ns[1:] = np.where(continues[1:] & near, end_ns[:-1], start_ns[1:])
    inside = np.zeros(len(rows) + 1, dtype=np.int64)
    np.add.at(inside, begin, 1)
    np.add.at(inside, end + 1, -1)
    return _Checks(rows[last], start_ns, end_ns, rows[np.cumsum(inside)[:-1] > 0])


def _last_end_ns(facts: Facts, rows: Rows, together: Bools, begin: Rows) -> Int64s:
    """When the operator before each of these ended, on its thread and in its step; without one the operator begins."""
    before = np.where(together[begin], rows[(begin - 1).clip(min=0)], NONE)
    start_ns = facts.trace.events.start_ns[rows[begin]]
    return np.where(before >= 0, np.minimum(facts.tree.end_ns[before], start_ns), start_ns)


def _outermost(facts: Facts) -> Rows:
    """The outermost operators of the measured steps, thread by thread in time order."""
    rows = facts.operators.rows
    rows = rows[facts.measured[rows] & facts.tree.outermost(facts.trace.mask_of(rows))[rows]]
    events = facts.trace.events
    return rows[np.lexsort((events.start_ns[rows], events.lane[rows]))]


def _begins(facts: Facts, rows: Rows, together: Bools, last: Rows, end: Rows) -> tuple[Rows, Bools]:
    """Where each check begins, and whether it follows the one before at once. Reshaping comes before it or within."""
    comparing = _are(facts, rows, _COMPARING)
    kin = comparing | _are(facts, rows, _BETWEEN)
    kin_before = np.append(False, kin[:-1]) & together
    begin = np.maximum.accumulate(np.where(kin & ~kin_before, np.arange(len(rows)), 0))[last]
    continues = np.append(False, begin[1:] <= end[:-1])
    begin = np.where(continues, np.append(0, end[:-1] + 1), begin)
    nearest = np.minimum.accumulate(np.where(comparing, np.arange(len(rows)), len(rows))[::-1])[::-1]
    return np.minimum(nearest[begin], last), continues


def _are(facts: Facts, rows: Rows, names: tuple[str, ...]) -> Bools:
    return facts.trace.named(*(f"aten::{name}" for name in names))[rows]
