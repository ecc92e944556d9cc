"""Launches of a step as points on the roofline."""

from __future__ import annotations

import pytest

from profkit.derive.device.kernel_families import Family
from profkit.run.directory import Host, Rates, Run
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


def test_a_product_beyond_the_peak_is_not_what_its_shapes_say():
    """A sparse matrix has the shape of a dense one: 137.4 G operations in 20 µs would be 7 times the peak."""
    facts = steps_of(
        call("aten::mm", [[4096, 4096], [4096, 4096]], BFLOAT16, ("cusparse::csrmm_alg2_kernel", 20.0)),
        call("aten::mm", [[64, 64], [64, 64]], BFLOAT16, (GEMM, 20.0), at=1_000.0, number=2),
    )
    found = roofline_of(facts)
    assert found is not None
    assert [point.call.shape(0) for point in found.points] == [(64, 64)]
    assert found.counted == pytest.approx(0.5)
    assert found.utilisation < 0.01


@pytest.mark.parametrize(("microseconds", "counted"), [(120.0, 0.0), (140.0, 1.0)])
def test_lists_that_no_memory_moves_so_fast(microseconds: float, counted: float):
    """Two tensors of 8192 x 4096 joined move 537 MB as float32: 160 µs at 3.35 TB/s, 128 at 1.25 times that."""
    tiles = [[8192, 4096], [8192, 4096]]
    facts = steps_of(call("aten::cat", [tiles, []], ["TensorList", "Scalar"], ("CatArrayBatchedCopy", microseconds)))
    found = roofline_of(facts)
    assert found is not None
    assert found.counted == counted


def test_a_call_that_passes_its_work_on_does_not_count_again():
    """``linear`` launches a kernel beside those of its ``addmm``, and the product is one."""
    shapes = [[512, 512], [512, 512], [512]]
    events = [
        op("aten::linear", 0, 90, dims=shapes, types=[BFLOAT16] * 3, external=1),
        op("aten::addmm", 10, 40, dims=[shapes[2], *shapes[:2]], types=[BFLOAT16] * 3, external=2),
        *call("", [], [], (GEMM, 50.0), at=20.0, number=2)[1:],
        *call("", [], [], ("zero_workspace", 50.0), at=60.0, number=3, on_device_at=200.0)[1:],
    ]
    facts = steps_of(events)
    found = roofline_of(facts)
    assert found is not None
    assert [point.call.name for point in found.points] == ["aten::addmm"]


def test_on_the_processor_only_the_innermost_of_a_family_counts():
    shapes = [[512, 512], [512, 512]]
    events = [step(0, 0, 10_000)]
    events += [op("aten::linear", 0, 900, dims=shapes, types=["float"] * 2)]
    events += [op("aten::mm", 50, 800, dims=shapes, types=["float"] * 2)]
    found = roofline_of(
        facts_of(
            events, run=Run(torch="2.13", device="", rates=Rates("cpu", 1e10, {"float32": 1e11}), host=Host(1, 1, 0))
        )
    )
    assert found is not None
    assert [point.call.name for point in found.points] == ["aten::mm"]


def test_two_devices_can_compute_twice_as_much():
    """138.9 µs at the peak on each of two devices, in a step of 400 µs."""
    square = [[4096, 4096], [4096, 4096]]
    calls = [
        call("aten::mm", square, BFLOAT16, (GEMM, 160.0), number=number, at=at) for number, at in ((1, 0), (2, 91))
    ]
    other = {"pid": 1, "tid": 7}
    moved = [{**event, **other} if event["cat"] == "kernel" else event for event in calls[1]]
    found = roofline_of(steps_of(calls[0], moved, length=400.0))
    assert found is not None
    assert found.utilisation == pytest.approx(138.9 / 400, rel=1e-3)


def test_products_of_a_type_without_a_rate_are_not_counted():
    """No data sheet here names a rate for int8, and traffic alone would be 4 % of the time."""
    facts = steps_of(call("aten::_int_mm", [[4096, 4096], [4096, 4096]], "signed char", ("cutlass_i8_gemm", 700.0)))
    found = roofline_of(facts)
    assert found is not None
    assert found.points == ()
