"""Products with a factor that is nearly all zeros."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.mostly_zero_factor import mostly_zero_factor
from profkit.run.directory import CallSite, Recomputation, Run, SparseFactor
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, step

SITES = (CallSite("graph.py", 5, "forward", "return mask.mm(features)"),)
FOUND = SparseFactor(call=0, shape=(1000, 2000), zero=0.9975)


def facts_with(known: Recomputation | None, steps_with: int = 4):
    """Steps of 100 µs: 60 µs for the product, 20 µs for something else."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        at = 100 * number
        product = op("aten::mm", at + 10, 60) if number < steps_with else op("aten::sort", at + 10, 60)
        events += [step(number, at, 100), product, op("aten::relu", at + 75, 20)]
        if not number:
            events += [mark(0, at + 8, 64), annotation(f"{CALL_MARK}0", at + 9, 62)]
    return facts_of(events, run=Run(recomputation=known), callsites=SITES)


def known(*products: SparseFactor) -> Recomputation:
    return Recomputation(looked_at=2, sparse=products)


def find(facts) -> list[Suspicion]:
    return list(mostly_zero_factor.check(facts))


def test_the_product_keeps_no_less_than_the_cheapest_operator_takes():
    facts = facts_with(known(FOUND))
    (found,) = find(facts)
    assert found.location.line == 5
    assert found.message == (
        "1 product a step has a factor that is nearly all zeros: of its 1,000 x 2,000 numbers 0.2 % are not."
    )
    assert found.evidence == {"zero_share": 0.9975, "rows": 1000, "columns": 2000}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=0.01)  # 60 µs become 20, as relu takes


def test_without_such_factors_it_is_silent():
    assert find(facts_with(known())) == []


def test_a_factor_that_picks_rows_is_another_fault():
    assert find(facts_with(known(SparseFactor(0, (1000, 2000), 0.9995, picks=True)))) == []


@pytest.mark.parametrize(("steps_with", "count"), [(4, 1), (2, 0)])
def test_it_must_be_so_in_most_steps(steps_with, count):
    assert len(find(facts_with(known(FOUND), steps_with))) == count


@pytest.mark.parametrize("number", [7, -1])
def test_calls_that_the_trace_does_not_have_are_left_out(number):
    assert find(facts_with(known(SparseFactor(number, (1000, 2000), 0.99)))) == []


@pytest.mark.parametrize("missing", [None, Recomputation(looked_at=2)])
def test_if_nothing_was_looked_at_it_says_so(missing):
    with pytest.raises(CannotLook):
        find(facts_with(missing))


def test_without_operators_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), kernel("gemm", 10, 40)])
    assert Need.OPERATORS in missing_needs(facts, mostly_zero_factor.needs)


@pytest.mark.parametrize("shape", [[1000, 2000], [2000, 2000]])
def test_what_makes_the_factor_of_a_sparse_tensor_goes_too(shape):
    """10 µs for `to_dense`, on another line; of a tensor of another shape it stays."""
    lines = (*SITES, CallSite("graph.py", 3, "forward", "mask = self.edges.to_dense()"))
    events: list[dict[str, Any]] = []
    for number in range(4):
        at = 100 * number
        making = op("aten::to_dense", at + 1, 6, dims=[shape, [], []])
        events += [step(number, at, 100), making, op("aten::mm", at + 10, 60), op("aten::relu", at + 75, 20)]
        if not number:
            marks = [mark(1, at, 8), mark(0, at + 8, 64), annotation(f"{CALL_MARK}0", at + 9, 62)]
            events += marks
    product = SparseFactor(0, (1000, 2000), 0.9975, was_sparse=True)
    facts = facts_of(events, run=Run(recomputation=known(product)), callsites=lines)
    (found,) = find(facts)
    is_known = shape == [1000, 2000]
    assert found.message.endswith("It is sparse before the step makes it dense.") == is_known
    assert found.fix.startswith("Leave it sparse") == is_known
    assert [place.line for place in found.places.all()] == ([5, 3] if is_known else [5])
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.6 if is_known else 0.54, abs=0.015)
