"""When in the run the program was at some lines: where a page marks what a rule says about them."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

import numpy as np

from profkit.derive.facts import Facts
from profkit.patterns.whole_run.curves import early_ns
from profkit.patterns.whole_run.phases import MOST_COLUMNS
from profkit.patterns.whole_run.run_parts import steps_within
from profkit.trace.events import Float64s

Span = tuple[int, int]
"""From one time to another, in nanoseconds since the start of the process."""
_NOTABLE, _OF_LONGEST = 0.02, 0.25
"""Of a column, and of the line's time in the column with most of it: a single look of many is not worth a mark."""
_MOST_SPANS = 60
"""A page of 1,200 pixels tells no more apart; the shortest gaps are closed."""


class When(Enum):
    """Which part of the run a finding is about: lines may run in others, too."""

    ANY = "any"
    BEFORE = "before the first step"
    BETWEEN = "between the first step and the last"
    AFTER = "after the last step"


def spans_of_lines(facts: Facts, lines: Collection[tuple[str, int]], when: When = When.ANY) -> tuple[Span, ...]:
    """The parts of the run in which one of these lines, each a file and a number, was on the stack for a notable part
    of the time; empty if the run was not watched."""
    account = facts.account
    if account.column_ns <= 0 or not lines or len(account.columns) > MOST_COLUMNS:
        return ()
    wanted = {at for at, place in enumerate(account.places) if (place.site.file, place.site.line) in lines}
    stacks = {number for number, stack in enumerate(account.stacks) if not wanted.isdisjoint(stack.places)}
    first, last = _columns_of(facts, when)
    times = np.array(
        [
            sum(time_ns for at, time_ns in column if at in stacks) if first <= number <= last else 0
            for number, column in enumerate(account.columns)
        ],
        dtype=np.float64,
    )
    return tuple(_joined(times, account.column_ns, early_ns(account)))


def _columns_of(facts: Facts, when: When) -> Span:
    """The first and the last column of this part."""
    account, within = facts.account, steps_within(facts)
    end = len(account.columns) - 1
    if within is None or when is When.ANY:
        return 0, end
    first, last = within[0] // account.column_ns, max(0, within[1] - 1) // account.column_ns
    return {When.BEFORE: (0, first), When.BETWEEN: (first, last), When.AFTER: (last, end)}[when]


def _joined(times: Float64s, column_ns: int, early: int) -> list[Span]:
    """Columns in a row are one span."""
    marked = (times >= _NOTABLE * column_ns) & (times >= _OF_LONGEST * times.max(initial=0.0)) & (times > 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if len(begins) > _MOST_SPANS:
        kept = np.sort(np.argsort(ends[:-1] - begins[1:], kind="stable")[: _MOST_SPANS - 1])  # after the longest gaps
        begins, ends = np.concatenate([begins[:1], begins[1:][kept]]), np.concatenate([ends[:-1][kept], ends[-1:]])
    return [
        (early + int(begin) * column_ns, early + int(end) * column_ns) for begin, end in zip(begins, ends, strict=True)
    ]
