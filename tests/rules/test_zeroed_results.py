"""Rows that are computed and then multiplied by zeros."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.core.marks import CALL_MARK
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.zeroed_results import zeroed_results
from profkit.run.directory import CallSite, Recomputation, Run, ZeroedResult
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, step

SITES = (
    CallSite("net.py", 5, "Net.forward", "y = self.expert(x)"),
    CallSite("net.py", 6, "Net.forward", "return y * gate"),
)


def facts_with(known: Recomputation | None, steps_with: int = 4):
    """Steps of 100 µs: 60 µs for the rows, 10 µs for the product."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        at = 100 * number
        made = op("aten::linear", at + 10, 60) if number < steps_with else op("aten::sort", at + 10, 60)
        events += [step(number, at, 100), made, op("aten::mul", at + 80, 10)]
        if not number:
            events += [mark(0, at + 8, 64), annotation(f"{CALL_MARK}0", at + 9, 62)]
            events += [mark(1, at + 78, 14), annotation(f"{CALL_MARK}1", at + 79, 12)]
    return facts_of(events, run=Run(recomputation=known), callsites=SITES)


def zeroed(*products: ZeroedResult) -> Recomputation:
    return Recomputation(looked_at=2, zeroed=products)


def find(facts) -> list[Suspicion]:
    return list(zeroed_results.check(facts))


FOUND = ZeroedResult(call=1, makers=(0,), rows=400, zero=0.75)


def test_the_rows_that_meet_zeros_are_left_out():
    facts = facts_with(zeroed(FOUND))
    (found,) = find(facts)
    assert [found.location.line, *(place.line for place in found.also)] == [6, 5]
    assert found.evidence == {"zero_share": 0.75, "rows": 400}
    assert found.message == (
        "1 operator a step computes 400 rows, but 75 % of them are multiplied by exact zeros here, and nothing else "
        "uses them."
    )
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.45, abs=0.06)


def test_rows_that_a_loss_ignores_are_told_as_such():
    (found,) = find(facts_with(zeroed(replace(FOUND, ignored=True))))
    assert "75 % of them are ignored by the loss here" in found.message
    assert "labels != -100" in found.fix


def test_without_such_products_it_is_silent():
    assert find(facts_with(zeroed())) == []


@pytest.mark.parametrize("number", [7, -1])
def test_calls_that_the_trace_does_not_have_are_left_out(number):
    assert find(facts_with(zeroed(ZeroedResult(number, (0,), 400, 0.75)))) == []
    assert find(facts_with(zeroed(ZeroedResult(1, (number,), 400, 0.75)))) == []


@pytest.mark.parametrize("known", [None, Recomputation(looked_at=2)])
def test_if_nothing_was_looked_at_it_says_so(known):
    with pytest.raises(CannotLook):
        find(facts_with(known))


def test_without_operators_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), kernel("gemm", 10, 40)])
    assert Need.OPERATORS in missing_needs(facts, zeroed_results.needs)
