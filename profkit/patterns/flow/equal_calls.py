"""Lines that ran several times in the located step with the same operators on tensors of the same shapes: in a loop,
or in a recursion."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.patterns.loops.located import located_marks, marks_around
from profkit.patterns.program import located_operators
from profkit.trace.events import Int64s, Rows
from profkit.trace.statistics import distinct


class EqualCalls(Struct, frozen=True):
    """A line's ``site``, the ``marks`` of its equal runs in time order, and their ``operators``: one row for each
    run."""

    site: int
    marks: Rows
    operators: Rows

    def is_one_loop(self, facts: Facts) -> bool:
        """Whether one run of one function made all of them."""
        return len(distinct(marks_around(facts)[self.marks])) == 1


def equal_calls(facts: Facts, least: int) -> Iterator[EqualCalls]:
    """Those of at least so many runs with operators in each, the ones with most of them first."""
    operators, events = located_operators(facts), facts.trace.events
    marks, first, last = _runs(facts, operators)
    groups: dict[tuple[int, bytes, bytes], list[int]] = {}
    for number, (site, begin, end) in enumerate(
        zip(events.site[marks].tolist(), first.tolist(), last.tolist(), strict=True)
    ):
        rows = operators[begin:end]
        key = site, events.name_code[rows].tobytes(), events.dims_code[rows].tobytes()
        groups.setdefault(key, []).append(number)
    found = [(key[0], np.array(numbers, dtype=np.int64)) for key, numbers in groups.items() if len(numbers) >= least]
    size = [-len(numbers) * int(last[numbers[0]] - first[numbers[0]]) for _, numbers in found]
    for number in np.argsort(size, kind="stable").tolist():
        site, numbers = found[number]
        numbers = _apart(numbers, first, last)
        if len(numbers) >= least:
            places = first[numbers][:, None] + np.arange(last[numbers[0]] - first[numbers[0]])
            yield EqualCalls(site, marks[numbers], operators[places])


def _runs(facts: Facts, operators: Rows) -> tuple[Rows, Int64s, Int64s]:
    """The marks of lines that ran operators, those of lines that ran once left out, and where among the operators each
    begins and ends."""
    marks, site = located_marks(facts), facts.trace.events.site
    first, last = np.searchsorted(operators, marks), np.searchsorted(operators, facts.tree.stop[marks])
    often = np.bincount(site[marks].clip(min=0), minlength=1) > 1
    chosen = (last > first) & often[site[marks].clip(min=0)]
    return marks[chosen], first[chosen], last[chosen]


def _apart(numbers: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Without those that lie within another: a function may call itself for the same work."""
    kept, end = [], -1
    for number in numbers.tolist():
        if first[number] >= end:
            kept.append(number)
            end = last[number]
    return np.array(kept, dtype=np.int64)


def loops_of(facts: Facts, calls: EqualCalls) -> list[Rows]:
    """The marks of each run of a loop in which these calls are."""
    around = marks_around(facts)[calls.marks].tolist()
    runs = groupby(range(len(around)), around.__getitem__)
    return [calls.marks[[*numbers]] for _, numbers in runs]
