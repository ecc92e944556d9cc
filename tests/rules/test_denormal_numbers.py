"""Operators on tensors with denormal numbers, and those that are as fast as with others."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Facts, Need, Suspicion, missing_needs
from profkit.rules.denormal_numbers import denormal_numbers
from profkit.run.directory import DenormalTensors, Host, Run
from profkit.savings.simulate import predict_saving
from tests.rules.shaped_steps import Json, steps_of, tensor_op
from tests.traces import facts_of, kernel, op, step

SHAPE = [10, 1000]
SLOW = DenormalTensors((10, 1000), "float", 1.0, 5.2, 0.2)
"""Multiplying all its numbers takes 50 us longer, and 26 times as long."""
HALF = DenormalTensors((10, 1000), "float", 0.03, 0.4, 0.2)


def watched(*events: Json, tensors: Any = (SLOW,), threads: int = 1) -> Facts:
    run = Run(denormals=tensors, host=Host(8, threads, 1 << 30))
    return facts_of(steps_of(*events), run=run)


def find(*events: Json, tensors: Any = (SLOW,), threads: int = 1) -> list[Suspicion]:
    return list(denormal_numbers.check(watched(*events, tensors=tensors, threads=threads)))


def test_an_operator_takes_as_much_less_as_a_product_did():
    """52 us of which 2 us are left: the 26th part is all that other numbers would take."""
    facts = watched(tensor_op("mul_", 10, 52, SHAPE, []))
    (found,) = denormal_numbers.check(facts)
    assert found.message == (
        "1 operator a step computes with denormal numbers, nearly zero but not zero: 100 % of those in a tensor of "
        "10 x 1,000. Multiplying it takes 26 times as long."
    )
    assert "torch.set_flush_denormal(True)" in found.fix
    assert "1.2e-38" in found.fix
    assert found.evidence == {"denormal_share": 1.0, "times_as_long": 26.0}
    assert predict_saving(facts, found.edit).time_ns_per_step == 50_000


@pytest.mark.parametrize(
    ("name", "took_us", "saved_ns"),
    [
        pytest.param("mul_", 100, 50_000, id="no more than all numbers took longer"),
        pytest.param("addr_", 104, 100_000, id="two products for each number"),
        pytest.param("tanh", 78, 75_000, id="a function takes more than a product"),
        pytest.param("mul", 45, 43_270, id="a little faster than expected"),
    ],
)
def test_the_price_is_never_more_than_the_evidence(name, took_us, saved_ns):
    facts = watched(tensor_op(name, 10, took_us, SHAPE, SHAPE))
    (found,) = denormal_numbers.check(facts)
    assert predict_saving(facts, found.edit).time_ns_per_step == saved_ns


def test_few_denormal_numbers_save_their_part():
    """Multiplying took twice as long: 2 us of 4 in all, and of an operator of 10 us no more."""
    facts = watched(tensor_op("mul_", 10, 10, SHAPE, []), tensors=(HALF,))
    (found,) = denormal_numbers.check(facts)
    assert predict_saving(facts, found.edit).time_ns_per_step == 2_000


def test_a_product_of_matrices_multiplies_each_number_many_times():
    """10 x 1,000 x 50 products would take 2.5 ms longer; from a fifth of that on, it takes the 26th part."""
    product = tensor_op("mm", 10, 520, SHAPE, [1000, 50])
    facts = facts_of(steps_of(product, length_us=1_000), run=Run(denormals=(SLOW,)))
    (found,) = denormal_numbers.check(facts)
    assert predict_saving(facts, found.edit).time_ns_per_step == 500_000
    assert find(tensor_op("mm", 5, 190, SHAPE, [1000, 50])) == []


def test_what_runs_inside_another_operator_counts_once():
    outer, inner = tensor_op("linear", 10, 180, SHAPE, [50, 1000]), tensor_op("addmm", 12, 170, [50], SHAPE, [1000, 50])
    tiny = DenormalTensors((10, 1000), "float", 1.0, 0.5, 0.1)
    facts = watched(outer, inner, tensors=(tiny,))
    (found,) = denormal_numbers.check(facts)
    assert len(found.rows) == 3
    assert predict_saving(facts, found.edit).time_ns_per_step == 144_000


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(tensor_op("mul_", 10, 44, SHAPE, []), id="as fast as with other numbers"),
        pytest.param(tensor_op("mul_", 10, 52, [1000, 10], []), id="another shape"),
        pytest.param(op("aten::mul_", 10, 52, dims=[SHAPE], types=["double"]), id="another type"),
        pytest.param(tensor_op("sum", 10, 52, SHAPE), id="adding up is not slowed down"),
        pytest.param(tensor_op("clamp_", 10, 52, SHAPE), id="nor is comparing"),
    ],
)
def test_other_operators_are_silent(event):
    assert find(event) == []


def test_in_several_threads_each_takes_a_part():
    """65,536 numbers take 328 us longer in one thread, and 164 in each of two; fewer than 32,768 take one."""
    large = DenormalTensors((65_536,), "float", 1.0, 5.2, 0.2)
    slow = tensor_op("mul_", 10, 150, [65_536], [])
    assert find(slow, tensors=(large,), threads=1) == []
    assert len(find(slow, tensors=(large,), threads=2)) == 1
    assert find(tensor_op("mul_", 10, 44, SHAPE, []), threads=8) == []


def test_below_half_a_per_cent_of_the_step_nothing_is_said():
    """1,000 us with 4 or 6 of them: half a per cent is 5."""
    for longer_us, said in ((4, 0), (6, 1)):
        known = DenormalTensors((10, 1000), "float", 1.0, longer_us / 10 + 1e-4, 1e-4)
        run = Run(denormals=(known,))
        facts = facts_of(steps_of(tensor_op("mul_", 10, longer_us + 1, SHAPE, []), length_us=1_000), run=run)
        assert len(list(denormal_numbers.check(facts))) == said


def test_without_such_tensors_it_is_silent():
    assert find(tensor_op("mul_", 10, 52, SHAPE, []), tensors=()) == []


def test_what_was_not_looked_at_is_said():
    with pytest.raises(CannotLook, match="was not read"):
        find(tensor_op("mul_", 10, 52, SHAPE, []), tensors=None)


def test_without_shapes_or_operators_the_rule_does_not_look():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100), op("aten::mul", 1, 9)]), denormal_numbers.needs)
    facts = facts_of([step(0, 0, 100), kernel("sort", 10, 40)])
    assert Need.OPERATORS in missing_needs(facts, denormal_numbers.needs)
