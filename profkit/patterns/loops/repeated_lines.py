"""Lines of the located step that run again and again under one mark: the lines of Python loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.patterns.loops.located import in_located_step, lines_outwards, marks_around, rounds_by_line
from profkit.trace.events import Category, Rows
from profkit.trace.statistics import distinct


class RepeatedLines(Struct, frozen=True):
    """One run of a loop in the located step: the first and the last mark of its lines, and their call sites."""

    first: int
    last: int
    sites: Rows

    def marks(self, facts: Facts) -> Rows:
        """All marks of its thread from its beginning to its end, those of functions that it calls among them."""
        events, marks = facts.trace.events, facts.trace.rows(Category.LINE_MARK)
        return self._within(facts, marks[events.lane[marks] == events.lane[self.first]])

    def own(self, facts: Facts, marks: Rows) -> Rows:
        """Of its `marks` those of the function that it is in."""
        around = marks_around(facts)
        own: Rows = marks[around[marks] == around[self.first]]
        return own

    def operators(self, facts: Facts) -> Rows:
        """The operators from its beginning to its end."""
        return self._within(facts, facts.operators.rows)

    def _within(self, facts: Facts, rows: Rows) -> Rows:
        within: Rows = rows[(rows >= self.first) & (facts.trace.events.start_ns[rows] < facts.tree.end_ns[self.last])]
        return within


def repeated_lines(facts: Facts, least: int) -> Iterator[RepeatedLines]:
    """Lines that ran ``least`` times or more under one mark, called operators, and alternate with one another."""
    site, around = facts.trace.events.site, marks_around(facts)
    located = in_located_step(facts, facts.operators.rows)
    holding = [marks for _, _, marks in lines_outwards(facts, located)]
    runs = rounds_by_line(facts, distinct(np.concatenate([*holding, located[:0]])), least)
    groups: list[list[Rows]] = []
    for run in sorted(runs, key=lambda run: (around[run[0]], run[0])):
        last = groups[-1] if groups else []
        if not last or around[run[0]] != around[last[0][0]] or run[0] > max(other[-1] for other in last):
            groups.append([])
        groups[-1].append(run)
    for group in groups:
        begin = np.array([run[0] for run in group])
        yield RepeatedLines(int(begin.min()), int(max(run[-1] for run in group)), distinct(site[begin]))
