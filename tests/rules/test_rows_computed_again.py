"""Rows that go through the same weights again."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.rows_computed_again import rows_computed_again
from profkit.run.directory import CallSite, Recomputation, Run, SharedRows
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, step

SITES = (
    CallSite("net.py", 5, "train", "now = encoder(frames[:-1])"),
    CallSite("net.py", 6, "train", "then = encoder(frames[1:])"),
    CallSite("net.py", 2, "forward", "return self.layer(x)"),
)
FOUND = SharedRows(call=1, first=0, rows=64, again=0.75)


def facts_with(known: Recomputation | None, steps_with: int = 4, *within: dict[str, Any]):
    """Steps of 100 µs: the first call takes 40 µs, the second one too."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        at = 100 * number
        again = op("aten::linear", at + 55, 40) if number < steps_with else op("aten::sort", at + 55, 40)
        events += [step(number, at, 100), op("aten::linear", at + 10, 40), again]
        if not number:
            events += [mark(0, at + 7, 45), mark(2, at + 8, 44), annotation(f"{CALL_MARK}0", at + 9, 42)]
            events += within
            events += [mark(1, at + 52, 45), mark(2, at + 53, 44), annotation(f"{CALL_MARK}1", at + 54, 42)]
    return facts_of(events, run=Run(recomputation=known), callsites=SITES)


def known(*rows: SharedRows) -> Recomputation:
    return Recomputation(looked_at=2, rows=rows)


def find(facts) -> list[Suspicion]:
    return list(rows_computed_again.check(facts))


def test_the_second_call_is_left_with_the_rows_that_are_new():
    facts = facts_with(known(FOUND))
    (found,) = find(facts)
    assert [found.location.line, *(place.line for place in found.also)] == [6, 5, 2]
    assert found.message == (
        "1 layer a step is given rows that went through the same weights before, at line 5: 75 % of 64."
    )
    assert found.evidence == {"rows": 64, "again_share": 0.75}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize(
    ("name", "concrete", "warned"),
    [
        ("aten::dropout", ["", "0.1", "True"], True),
        ("aten::dropout", ["", "0.1", "False"], False),
        ("aten::batch_norm", ["", "", "", "", "", "True"], True),
        ("aten::batch_norm", ["", "", "", "", "", "False"], False),
    ],
)
def test_layers_before_dropout_or_batch_statistics_are_all_that_one_call_may_hold(name, concrete, warned):
    (found,) = find(facts_with(known(FOUND), 4, op(name, 95.5, 0.3, concrete=concrete)))
    assert ("only the layers in front of it" in found.fix) == warned


def test_in_a_loop_both_calls_are_made_by_one_line():
    facts = facts_with(known(SharedRows(call=1, first=1, rows=64, again=0.75)))
    assert "before, at this line too: 75 % of 64." in find(facts)[0].message


def test_without_such_rows_it_is_silent():
    assert find(facts_with(known())) == []


@pytest.mark.parametrize(("steps_with", "count"), [(4, 1), (2, 0)])
def test_it_must_be_so_in_most_steps(steps_with, count):
    assert len(find(facts_with(known(FOUND), steps_with))) == count


@pytest.mark.parametrize("calls", [(7, 0), (1, -1)])
def test_calls_that_the_trace_does_not_have_are_left_out(calls):
    assert find(facts_with(known(SharedRows(*calls, rows=64, again=0.75)))) == []


@pytest.mark.parametrize("missing", [None, Recomputation(looked_at=2)])
def test_if_nothing_was_looked_at_it_says_so(missing):
    with pytest.raises(CannotLook):
        find(facts_with(missing))


def test_without_operators_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), kernel("gemm", 10, 40)])
    assert Need.OPERATORS in missing_needs(facts, rows_computed_again.needs)
