"""Updates of several passes over memory, and of one."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.bandwidth_bound_optimizer import bandwidth_bound_optimizer
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.run.directory import Run
from tests.rules.roofs import H100, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import annotation, facts_of, step

SHAPES = [[16384, 8192], [16384, 8192]]
"""1.07 GB of float32: a pass takes 320.5 µs at 3.35 TB/s."""
PASS_US = 400.0
ADAM = (
    ("lerp_", 2, 3),
    ("mul_", 1, 2),
    ("addcmul_", 3, 3),
    ("sqrt", 1, 2),
    ("div_", 1, 2),
    ("add_", 1, 2),
    ("addcdiv_", 3, 4),
)
"""Names, lists, and how many of them are read or written."""
SGD = (("add_", 2, 3),)
MOMENTUM = (("mul_", 1, 2), ("add_", 2, 3), ("add_", 2, 3))


def update(calls: tuple[tuple[str, int, int], ...], name: str, shapes: Any = SHAPES, each_us: float = PASS_US) -> Any:
    parts, begin = [annotation(f"Optimizer.step#{name}.step", 0, 100 * (len(calls) + 1))], 20.0
    for number, (operator, lists, passes) in enumerate(calls, 1):
        dims, types = [*[shapes] * lists, []], [*["TensorList"] * lists, "Scalar"]
        kernel = ("multi_tensor_apply_kernel", each_us * passes)
        parts += call(
            f"aten::_foreach_{operator}", dims, types, kernel, at=100.0 * number, number=number, on_device_at=begin
        )
        begin += each_us * passes
    return parts


def recording(
    calls: Any = ADAM, name: str = "Adam", card: str = H100, other_us: float = 0.0, idle: float = 0.0, **more: Any
) -> Facts:
    parts = update(calls, name, **more)
    other = call("aten::sum", [[64, 64]], "float", ("reduce_kernel", other_us), at=1_500, number=50, on_device_at=9_000)
    return on_device(parts, *([other] if other_us else []), card=card, idle=idle)


def test_seven_passes_of_adam_become_one():
    """18 passes of 400 µs are 7.2 ms; seven at 70 % of the rate take 3.2 ms."""
    facts = recording()
    (one,) = found(bandwidth_bound_optimizer, facts)
    assert one.message.startswith("Adam updates 1.07 GB of parameters in 7 calls on lists of tensors")
    assert "in 7.20 ms a step; one fused pass moves 7.52 GB" in one.message
    assert "fused=True" in one.fix
    assert saved(facts, one) == pytest.approx((7_200 - 7 * 320.5 / 0.7) / 7_230, abs=0.01)


def test_operators_that_all_take_less_than_a_tenth_are_passes_too():
    names = "mul_ add_ sqrt neg reciprocal pow sub_ div_ zero_ clamp_min_ clamp_max_ copy_".split()
    (one,) = found(bandwidth_bound_optimizer, recording(tuple((name, 1, 1) for name in names), each_us=700.0))
    assert "updates 1.07 GB of parameters in 12 calls" in one.message


def test_momentum_is_a_state():
    (one,) = found(bandwidth_bound_optimizer, recording(MOMENTUM, "SGD"))
    assert "one fused pass moves 5.37 GB" in one.message


def test_plain_sgd_has_one_pass_anyway():
    assert found(bandwidth_bound_optimizer, recording(SGD, "SGD")) == []


def test_an_optimizer_without_a_fused_form_is_another_matter():
    assert found(bandwidth_bound_optimizer, recording(ADAM, "RMSprop")) == []


def test_lists_outside_an_update_are_none():
    calls = [one for one in update(ADAM, "Adam") if not one["name"].startswith("Optimizer")]
    assert found(bandwidth_bound_optimizer, on_device(calls)) == []


def test_a_release_without_the_fused_form_is_silent():
    facts = recording(ADAM, "AdamW")
    assert found(bandwidth_bound_optimizer, facts)
    old = facts_of_run(facts, "1.13.1")
    assert found(bandwidth_bound_optimizer, old) == []


def test_the_boundary_is_three_per_cent_of_the_step():
    assert found(bandwidth_bound_optimizer, recording(other_us=120_000))
    assert found(bandwidth_bound_optimizer, recording(other_us=140_000)) == []


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    assert found(bandwidth_bound_optimizer, recording(idle=200_000)) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(bandwidth_bound_optimizer, recording(card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), bandwidth_bound_optimizer.needs)


def facts_of_run(facts: Facts, torch: str) -> Facts:
    return Facts(facts.trace, Run(torch=torch))
