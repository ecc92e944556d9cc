"""Lines that ran several times in the located step with the same operators on tensors of the same shapes: in a loop,
or in a recursion."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.loops.located import located_marks, marks_around
from profkit.patterns.loops.loop_source import nameless_functions
from profkit.patterns.places.events import call_site
from profkit.patterns.program import located_operators
from profkit.trace.events import Bools, Rows
from profkit.trace.statistics import distinct


class EqualCalls(Struct, frozen=True):
    """A line's ``site``, the ``marks`` of its equal runs in the order of their operators, and their ``operators``: one
    row for each run. If the runs are equal but for sizes, ``filled`` is the share of a padded tensor that the program's
    numbers are."""

    site: int
    marks: Rows
    operators: Rows
    filled: float = 1.0

    @property
    def is_ragged(self) -> bool:
        return self.filled < 1

    def is_one_loop(self, facts: Facts) -> bool:
        """Whether one run of one function made all of them."""
        return len(distinct(marks_around(facts)[self.marks])) == 1


def equal_calls(facts: Facts, least: int) -> Iterator[EqualCalls]:
    """Those of at least so many runs with operators in each, the ones with most of them first. A line that calls its
    own function again has the operators that it calls itself."""
    events = facts.trace.events
    marks, runs = runs_of_lines(facts)
    groups: dict[tuple[int, bytes, bytes], list[int]] = {}
    for number, (site, rows) in enumerate(zip(events.site[marks].tolist(), runs, strict=True)):
        key = site, events.name_code[rows].tobytes(), events.dims_code[rows].tobytes()
        groups.setdefault(key, []).append(number)
    found = [(key[0], numbers) for key, numbers in groups.items() if len(numbers) >= least]
    size = [-len(numbers) * len(runs[numbers[0]]) for _, numbers in found]
    for place in np.argsort(np.array(size, dtype=np.int64), kind="stable").tolist():
        site, numbers = found[place]
        numbers = apart(numbers, runs)
        if len(numbers) >= least:
            yield EqualCalls(site, marks[numbers], np.stack([runs[number] for number in numbers]))


@derived_once
def runs_of_lines(facts: Facts) -> tuple[Rows, list[Rows]]:
    """The marks of lines that ran operators, in time order, without those of lines that ran once; and the operators of
    each."""
    operators = located_operators(facts)
    marks, site = located_marks(facts), facts.trace.events.site
    often = np.bincount(site[marks].clip(min=0), minlength=1) > 1
    marks = marks[often[site[marks].clip(min=0)]]
    first, last = np.searchsorted(operators, marks), np.searchsorted(operators, facts.tree.stop[marks])
    around = marks_around(facts)[operators]
    order = np.argsort(around, kind="stable")
    own = [np.searchsorted(around[order], marks, side=side) for side in ("left", "right")]
    again = np.isin(site[marks], distinct(site[marks[_are_inside_themselves(facts, marks)]]))
    runs = [
        operators[order[of:to]] if recurs else operators[begin:end]
        for recurs, of, to, begin, end in zip(
            again.tolist(), *(one.tolist() for one in (*own, first, last)), strict=True
        )
    ]
    kept = [number for number, rows in enumerate(runs) if rows.size]
    return marks[kept], [runs[number] for number in kept]


def _are_inside_themselves(facts: Facts, marks: Rows) -> Bools:
    """Whether marks of the same line lie around, more than its text makes functions without a name: the function has
    called itself."""
    site, above = facts.trace.events.site, marks_around(facts)
    nested, outer = np.zeros(len(marks), dtype=np.int64), above[marks]
    while (outer >= 0).any():
        nested += (outer >= 0) & (site[outer] == site[marks])
        outer = np.where(outer >= 0, above[outer], outer)
    codes, line = np.unique(site[marks], return_inverse=True)
    places = [call_site(facts, code) for code in codes.tolist()]
    without_name = np.array([nameless_functions(place.source) if place else 0 for place in places], dtype=np.int64)
    inside: Bools = nested > without_name[line]
    return inside


def apart(numbers: list[int], runs: list[Rows]) -> list[int]:
    """Without those that lie within another, in the order of their operators: a function may call itself for the same
    work, and in a recursion the outer calls may end first or last."""
    kept, end = list[int](), -1
    for number in sorted(numbers, key=lambda one: (int(runs[one][0]), -int(runs[one][-1]))):
        if runs[number][0] > end:
            kept.append(number)
            end = int(runs[number][-1])
    return kept


def loops_of(facts: Facts, calls: EqualCalls) -> list[Rows]:
    """The marks of each run of a loop in which these calls are."""
    around = marks_around(facts)[calls.marks].tolist()
    runs = groupby(range(len(around)), around.__getitem__)
    return [calls.marks[[*numbers]] for _, numbers in runs]


def rounds_with_operators(facts: Facts, calls: EqualCalls) -> int:
    """How many rounds of the loops in which these calls are have operators, equal ones or others."""
    site, around, marks = facts.trace.events.site, marks_around(facts), located_marks(facts)
    same = marks[(site[marks] == calls.site) & np.isin(around[marks], around[calls.marks])]
    operators = located_operators(facts)
    works = np.searchsorted(operators, facts.tree.stop[same]) > np.searchsorted(operators, same)
    return int(works.sum())
