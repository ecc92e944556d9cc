"""Lines of the located step that run again and again under one mark: the lines of Python loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.patterns.loops.located import in_located_step, lines_outwards, marks_around, rounds_by_line
from profkit.trace.events import Rows
from profkit.trace.statistics import distinct


def repeated_lines(facts: Facts, least: int) -> Iterator[tuple[int, int, Rows]]:
    """The first and the last mark, and the call sites, of lines that ran ``least`` times or more under one mark,
    called operators, and alternate with one another."""
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
        yield int(begin.min()), int(max(run[-1] for run in group)), distinct(site[begin])
