"""Elementwise operations far below the memory's rate, and others."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.slow_elementwise import slow_elementwise
from tests.rules.roofs import H100, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import facts_of, op, step

VECTORISED = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"
STRIDED = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<> >"
LARGE = [[8192, 8192], [8192, 8192], []]
"""805 MB: 240.4 µs at 3.35 TB/s."""
TYPES = ["float", "float", "Scalar"]


def recording(
    us: float, dims: list[list[int]] = LARGE, name: str = STRIDED, card: str = H100, idle: float = 0.0
) -> Facts:
    return on_device(call("aten::add", dims, TYPES, (name, us)), card=card, idle=idle)


def test_a_strided_addition_at_a_quarter_of_the_rate_is_found():
    facts = recording(961.6)
    (one,) = found(slow_elementwise, facts)
    assert "25 % of the memory's rate. The kernel loads single elements" in one.message
    assert "layout" in one.fix
    assert saved(facts, one) > 0.5


def test_a_vectorised_kernel_has_another_reason():
    (one,) = found(slow_elementwise, recording(961.6, name=VECTORISED))
    assert "although the kernel is vectorised" in one.message
    assert "throttled" in one.fix


def test_at_the_usual_rate_it_is_silent():
    assert found(slow_elementwise, recording(300)) == []


def test_the_boundary_is_four_tenths():
    assert found(slow_elementwise, recording(610))
    assert found(slow_elementwise, recording(590)) == []


def test_small_tensors_may_lie_in_caches():
    assert found(slow_elementwise, recording(300, [[4096, 4096], [4096, 4096], []])) == []


def test_the_bias_of_a_convolution_is_the_librarys():
    around = op("aten::_convolution", 0, 95)
    inner = call("aten::add_", LARGE, TYPES, (STRIDED, 961.6), at=1)
    assert found(slow_elementwise, on_device([around, *inner])) == []


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    assert found(slow_elementwise, recording(961.6, idle=100_000)) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(slow_elementwise, recording(961.6, card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), slow_elementwise.needs)
