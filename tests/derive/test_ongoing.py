"""The loop in which a recording ended, by the lines that repeat until then."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.steps.boundaries import ONGOING_LOOP, WHOLE_RECORDING, Steps
from profkit.derive.steps.ongoing import find_ongoing
from profkit.run.directory import Run
from tests.traces import facts_of, mark, op

Json = dict[str, Any]
CHANCE = (0, 2, 1, 3, 0, 1)
IMPORTS, HEADER, BODY, BRANCH, LATER, CALLED = range(6)


def _rounds(count: int, at: float = 10_000, length: float = 5_000, sequence: int | None = None) -> list[Json]:
    """Rounds of a loop: its header, and two lines, one of them as often as chance has it. No two rounds in a row are
    alike, so that nothing else repeats."""
    events: list[Json] = []
    for number in range(count):
        inside = length - 100 * (number % 3) - 500
        events += [mark(HEADER, at, 100), mark(BODY, at + 100, inside)]
        for one in range(3 + 2 * CHANCE[number]):
            node = None if sequence is None else sequence + 10 * number + one
            events.append(op(f"aten::op{(number * 7 + one) % 11}", at + 150 + 200 * one, 100, sequence=node))
        events += [mark(BRANCH, at + 150 + inside + 60 * one, 50) for one in range(CHANCE[number])]
        at += length
    return events


def _found(events: list[Json]) -> list[int] | None:
    facts = facts_of(events)
    found = find_ongoing(facts.trace, facts.tree, 0)
    return None if found is None else [int(start) // 1000 for start in found]


def _steps(events: list[Json], run: Run | None = None) -> Steps:
    return facts_of(events, run=run).steps


def test_the_header_begins_the_rounds():
    assert _found([mark(IMPORTS, 0, 9_000), *_rounds(4)]) == [10_000, 15_000, 20_000, 25_000]


@pytest.mark.parametrize(("count", "is_loop"), [(3, True), (2, False)])
def test_two_rounds_may_be_two_calls(count, is_loop):
    assert (_found([mark(IMPORTS, 0, 9_000), *_rounds(count)]) is not None) is is_loop


@pytest.mark.parametrize(("gap", "is_loop"), [(4_000, True), (12_000, False)])
def test_a_loop_that_was_over_does_not_count(gap, is_loop):
    """The last header came at 25 ms, and another line followed."""
    later = [mark(LATER, 26_000 + gap, 100)]
    assert (_found([*_rounds(4), *later]) is not None) is is_loop


def test_of_nested_loops_the_outermost_with_enough_rounds_counts():
    inner = [mark(CALLED, 10_200 + 5_000 * number + 300 * one, 100) for number in range(4) for one in range(5)]
    before = mark(IMPORTS, 0, 9_000)
    assert _found([before, *_rounds(4), *inner]) == [10_000, 15_000, 20_000, 25_000]
    called = mark(LATER, 9_500, 40_000)
    assert _found([before, called, *_rounds(4), *inner]) == [10_000, 15_000, 20_000, 25_000]


def test_a_mark_that_was_closed_and_opened_again_is_no_round():
    assert _found([mark(LATER, at, 900) for at in range(0, 5_000, 1_000)]) is None


def test_a_recording_without_marks_shows_none():
    assert _found([op("aten::mm", at, 10) for at in range(0, 500, 100)]) is None


def test_of_what_passed_before_steps_the_loop_is_one_step_without_what_came_before_it():
    events = [mark(IMPORTS, 0, 9_000), op("aten::mm", 0, 1), *_rounds(5, sequence=1)]
    facts = facts_of(events, run=Run(torch="2.13", reference_step_ns=(10**9,)))
    steps = facts.steps
    assert (steps.source, len(steps)) == (ONGOING_LOOP, 1)
    assert (int(steps.start_ns[0]), int(steps.end_ns[0])) == (10_000_000, 34_500_000)
    assert facts.is_beginning
    assert facts.is_part


def test_rounds_of_a_program_that_steps_nothing_are_one_step():
    steps = _steps(_rounds(5), Run(torch="2.13"))
    assert (steps.source, len(steps)) == (ONGOING_LOOP, 1)
    assert not facts_of(_rounds(5), run=Run(torch="2.13")).is_part


def test_a_loop_with_few_of_the_operators_does_not_stand_for_the_recording():
    before = [op(f"aten::other{number}", 20 * number, 1) for number in range(100)]
    assert _steps([*before, *_rounds(4)], Run(torch="2.13")).source == WHOLE_RECORDING
