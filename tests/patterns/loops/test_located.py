"""The lines around events of the located step, and the rounds of each."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.patterns.loops.located import lines_outwards, located_marks, rounds_by_line
from profkit.run.directory import CallSite
from tests.traces import facts_of, mark, op, step

OUTER, INNER, OTHER = 0, 1, 2
SITES = tuple(CallSite("a.py", line, "f", "") for line in range(1, 4))


def _nested() -> Facts:
    """A line that runs twice; below it another that runs twice and then once, with an operator each time, and after
    these an operator of no line."""
    inner = [(10, 12), (30, 32), (110, 112)]
    return facts_of(
        [
            step(0, 0, 1000),
            mark(OUTER, 5, 90),
            mark(OUTER, 105, 90),
            *(mark(INNER, start, 10) for start, _ in inner),
            *(op("aten::mm", start, 2) for _, start in inner),
            op("aten::mm", 500, 2),
        ],
        callsites=SITES,
    )


def test_lines_come_from_the_innermost_outwards_with_a_mark_for_each_event():
    facts = _nested()
    start_ns = facts.trace.events.start_ns
    found = [
        (site, numbers.tolist(), (start_ns[marks] // 1000).tolist())
        for site, numbers, marks in lines_outwards(facts, facts.operators.rows)
    ]
    assert found == [(INNER, [0, 1, 2], [10, 30, 110]), (OUTER, [0, 1, 2], [5, 5, 105])]


def test_events_of_no_line_have_no_lines():
    facts = _nested()
    assert list(lines_outwards(facts, facts.operators.rows[3:])) == []
    assert list(lines_outwards(facts, facts.operators.rows[:0])) == []


def test_a_lines_rounds_are_its_marks_under_one_mark():
    facts = _nested()
    starts = [
        (facts.trace.events.start_ns[rounds] // 1000).tolist()
        for rounds in rounds_by_line(facts, located_marks(facts), 1)
    ]
    assert sorted(starts) == [[5, 105], [10, 30], [110]]


def test_fewer_rounds_than_asked_for_are_left_out():
    facts = _nested()
    assert sorted(len(rounds) for rounds in rounds_by_line(facts, located_marks(facts), 2)) == [2, 2]
    assert rounds_by_line(facts, located_marks(facts), 3) == []
    assert rounds_by_line(facts, np.zeros(0, dtype=np.int64), 1) == []
