"""The share of the run after the recording that passed at a line."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.patterns.whole_run.afterwards import share_afterwards, time_afterwards
from tests.patterns.looks import BEGUN_NS, EVALUATE, FORWARD, MS, UPDATE, looked_at
from tests.traces import facts_of, op

COLUMNS = [{EVALUATE: 100 * MS}, {EVALUATE: 100 * MS}, {UPDATE: 75 * MS, FORWARD: 25 * MS}, {UPDATE: 100 * MS}]


def of(columns: list[dict[int, int]] = COLUMNS, ended_ms: int = 150, look_ms: float = 5) -> Facts:
    """A recording of the run's first milliseconds."""
    events = [op("aten::mm", 0, 1000 * ended_ms)]
    return facts_of(events, account=looked_at(columns, look_ms), baseTimeNanoseconds=BEGUN_NS)


def test_what_passed_during_the_recording_does_not_count():
    facts = of()
    assert share_afterwards(facts, {("train.py", 50)}) == 0.0
    assert share_afterwards(facts, {("train.py", 43)}) == 175 / 200


def test_a_line_has_what_it_calls_and_lines_on_one_stack_count_once():
    facts = of()
    assert share_afterwards(facts, {("train.py", 46)}) == 25 / 200
    assert share_afterwards(facts, {("train.py", 46), ("train.py", 12), ("model.py", 7)}) == 25 / 200


@pytest.mark.parametrize(("look_ms", "is_known"), [(9, True), (11, False)])
def test_of_few_looks_nothing_is_known(look_ms, is_known):
    """200 ms are a little more or less than twenty."""
    assert (time_afterwards(of(look_ms=look_ms)) is not None) is is_known


def test_without_a_watch_or_a_line_nothing_is_known():
    assert share_afterwards(facts_of([op("aten::mm", 0, 9)]), {("train.py", 43)}) is None
    assert share_afterwards(of(), set()) is None


def test_a_recording_by_another_clock_shows_nothing():
    facts = facts_of([op("aten::mm", 0, 9)], account=looked_at(COLUMNS, 5), baseTimeNanoseconds=BEGUN_NS - 10**12)
    assert time_afterwards(facts) is None


def test_a_recording_up_to_the_end_leaves_nothing():
    assert time_afterwards(of(ended_ms=399)) is None
