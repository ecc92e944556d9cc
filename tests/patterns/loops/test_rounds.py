"""The rounds of loops, found by the line marks around some events."""

from __future__ import annotations

from profkit.patterns.loops.rounds import find_rounds
from profkit.run.directory import CallSite
from tests.traces import facts_of, mark, op, rows_named, step

SITES = tuple(CallSite("a.py", line, "f", "") for line in range(1, 5))


def rounds_of(*marks: tuple[int, float, float]):
    """The loops around an operator inside each mark of site 3: their number of rounds, level and site."""
    inner = [(start, length) for site, start, length in marks if site == 3]
    events = [step(0, 0, 1000), *(mark(*each) for each in marks), *(op("aten::mm", start + 1, 1) for start, _ in inner)]
    facts = facts_of(events, callsites=SITES)
    rows = facts.operators.rows
    assert rows.tolist() == rows_named(facts.trace, "aten::mm")
    found = find_rounds(facts, rows)
    return [(len(each.events), each.level, int(facts.trace.events.site[each.marks[0]])) for each in found]


def test_the_line_of_a_loop_is_the_outermost_that_changes():
    assert rounds_of((1, 10, 20), (3, 12, 10), (1, 40, 20), (3, 42, 10), (1, 70, 20), (3, 72, 10)) == [(3, 0, 1)]


def test_a_nested_loop_is_a_loop_in_each_round_of_the_outer_one():
    first = ((1, 10, 90), (3, 12, 10), (3, 32, 10), (3, 52, 10))
    second = ((1, 110, 90), (3, 112, 10), (3, 132, 10), (3, 152, 10))
    assert rounds_of(*first, *second) == [(3, 1, 3), (2, 0, 1), (3, 1, 3)]


def test_successive_lines_are_not_rounds():
    assert rounds_of((0, 10, 20), (3, 12, 10), (1, 40, 20), (3, 42, 10), (2, 70, 20), (3, 72, 10)) == []
