"""Launches of a step as points on the roofline."""

from __future__ import annotations

import pytest

from profkit.derive.device.kernel_families import Family
from profkit.savings.roofline.launches import roofline_of
from tests.savings.roofline.launching import call, steps_of
from tests.traces import facts_of, op, step

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
BFLOAT16 = "c10::BFloat16"


def test_a_product_below_the_roof():
    """2 * 4096^3 operations are 137.4 G: 138.9 µs at 989.5 TFLOP/s."""
    facts = steps_of(call("aten::mm", [[4096, 4096], [4096, 4096]], BFLOAT16, (GEMM, 277.8)))
    found = roofline_of(facts)
    assert found is not None
    (point,) = found.points
    assert point.rate == "bfloat16"
    assert point.each_ns == pytest.approx(277_800)
    assert point.least_ns == pytest.approx(138_900, rel=1e-3)
    assert point.of_possible == pytest.approx(0.5, rel=1e-3)
    assert not point.is_memory_bound
    assert found.counted == 1.0
    assert found.utilisation == pytest.approx(138.9 / 10_000, rel=1e-3)


def test_an_addition_is_bound_by_memory():
    """Three tensors of 256 MiB take 240 µs at 3.35 TB/s."""
    facts = steps_of(call("aten::add", [[8192, 8192], [8192, 8192], []], ["float", "float", "Scalar"], (ADD, 480.8)))
    found = roofline_of(facts)
    assert found is not None
    (point,) = found.points
    assert point.is_memory_bound
    assert point.demand.kind is Family.ELEMENTWISE
    assert point.of_possible == pytest.approx(0.5, rel=1e-3)
    assert found.utilisation == 0.0


def test_all_kernels_of_a_call_belong_to_it():
    facts = steps_of(call("aten::mm", [[64, 64], [64, 64]], "float", ("splitKreduce_kernel", 5), ("sgemm", 10)))
    found = roofline_of(facts)
    assert found is not None
    (point,) = found.points
    assert point.each_ns == pytest.approx(15_000)
    assert point.count == pytest.approx(1.0)


def test_tf32_counts_where_a_kernel_says_so():
    facts = steps_of(call("aten::mm", [[512, 512], [512, 512]], "float", ("cutlass_80_tensorop_s1688gemm_128x128", 10)))
    found = roofline_of(facts)
    assert found is not None
    assert found.points[0].rate == "tf32"


def test_the_innermost_call_counts():
    """Under autocast the layer has tensors of float32, and its product those of bfloat16."""
    outer = op("aten::linear", 0, 95, dims=[[64, 64], [64, 64]], types=["float", "float"])
    inner = call("aten::mm", [[64, 64], [64, 64]], BFLOAT16, (GEMM, 10), at=1)
    found = roofline_of(steps_of([outer, *inner]))
    assert found is not None
    assert [point.call.name for point in found.points] == ["aten::mm"]


def test_work_without_a_model_is_not_counted():
    known = call("aten::mm", [[64, 64], [64, 64]], "float", ("sgemm", 30))
    unknown = call("aten::nonzero", [[64, 64]], "float", ("write_indices", 10), at=200, number=2)
    found = roofline_of(steps_of(known, unknown))
    assert found is not None
    assert found.counted == pytest.approx(0.75)


def test_a_card_without_data_sheet_has_no_roofline():
    assert (
        roofline_of(steps_of(call("aten::mm", [[64, 64], [64, 64]], "float", ("sgemm", 30)), card="Some GPU")) is None
    )
    assert roofline_of(steps_of(call("aten::mm", [[64, 64], [64, 64]], "float", ("sgemm", 30)), card="")) is None


def test_without_shapes_there_is_none():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 1, 50)])
    assert roofline_of(facts) is None
