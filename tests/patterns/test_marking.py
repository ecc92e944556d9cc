"""When a run was at some lines."""

from __future__ import annotations

import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.patterns.whole_run.marking import _MOST_SPANS, When, spans_of_lines
from profkit.run.directory import Run
from profkit.trace.events import no_trace
from tests.patterns.looks import MS, SCORE, UPDATE, looked_at

EVALUATED = {("train.py", 46)}
"""The line that calls the evaluation."""
TRAIN, EVALUATION = {UPDATE: 100 * MS}, {SCORE: 100 * MS}


def facts_of(columns):
    account = looked_at(columns)
    return Facts(no_trace(), Run(), account=structs.replace(account, stacks=account.stacks[: SCORE + 1]))


def test_columns_in_a_row_are_one_span():
    facts = facts_of([TRAIN, EVALUATION, EVALUATION, TRAIN, EVALUATION, TRAIN])
    assert spans_of_lines(facts, EVALUATED) == ((100 * MS, 300 * MS), (400 * MS, 500 * MS))


@pytest.mark.parametrize(
    ("when", "found"),
    [
        (When.BEFORE, ((0, 100 * MS),)),
        (When.BETWEEN, ((200 * MS, 300 * MS),)),
        (When.AFTER, ((400 * MS, 500 * MS),)),
        (When.ANY, ((0, 100 * MS), (200 * MS, 300 * MS), (400 * MS, 500 * MS))),
    ],
)
def test_only_the_part_of_the_run_counts_that_a_finding_is_about(when, found):
    facts = facts_of([EVALUATION, TRAIN, EVALUATION, TRAIN, EVALUATION])
    assert spans_of_lines(facts, EVALUATED, when) == found


def test_a_single_look_beside_longer_stretches_is_no_mark():
    facts = facts_of([TRAIN, {UPDATE: 99 * MS, SCORE: MS}, EVALUATION])
    assert spans_of_lines(facts, EVALUATED) == ((200 * MS, 300 * MS),)


def test_of_many_spans_the_shortest_gaps_are_closed():
    facts = facts_of([EVALUATION, TRAIN, TRAIN] * 100 + [EVALUATION, TRAIN, EVALUATION])
    found = spans_of_lines(facts, EVALUATED)
    assert len(found) == _MOST_SPANS
    assert (found[0][0], found[-1][1]) == (0, 30_300 * MS)


def test_lines_that_were_never_seen_have_no_span():
    assert spans_of_lines(facts_of([TRAIN]), {("train.py", 999)}) == ()
    assert spans_of_lines(facts_of([TRAIN]), set()) == ()
    assert spans_of_lines(Facts(no_trace(), Run()), EVALUATED) == ()
