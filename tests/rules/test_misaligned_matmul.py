"""Kernels that load single elements, and those that do so for another reason or look alike."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.misaligned_matmul import misaligned_matmul
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, runtime, step

Json = dict[str, Any]
A100 = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]
"""312 TFLOP/s at 16 bits, 156 with TF32, 2039 GB/s."""
BY_ELEMENT = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
FAST = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
ODD = [[1000, 1000], [1000, 1001]]
EVEN = [[1000, 1000], [1000, 1000]]
PADDED_US = 2 * 1000 * 1000 * 1024 / 312e6
"""Of the odd one with 1,024 columns: bound by arithmetic."""


def product(
    at: float,
    name: str,
    correlation: int,
    dims: Any = ODD,
    kind: str = "c10::BFloat16",
    us: float = 60,
    operator: str = "aten::mm",
    queued: float = 10,
) -> list[Json]:
    """A product whose kernel of that name runs so long behind its launch."""
    return [
        op(operator, at, 10, dims=dims, types=[kind, kind], concrete=["", ""]),
        runtime("cudaLaunchKernel", at + 2, 5, correlation=correlation),
        kernel(name, at + queued, us, correlation=correlation),
    ]


def recording(name: str = BY_ELEMENT, devices: Any = A100, steps: int = 3, **more: Any) -> Facts:
    """Steps of 100 µs with one product each, whose end the host waits for."""
    events = [
        event
        for i in range(steps)
        for event in (
            step(i, 100 * i, 100),
            *product(100 * i + 5, name, i + 1, **more),
            runtime("cudaDeviceSynchronize", 100 * i + 15.2, more.get("us", 60)),
        )
    ]
    return facts_of(events, deviceProperties=devices)


def find(facts: Facts) -> list[Suspicion]:
    return list(misaligned_matmul.check(facts))


def test_a_kernel_that_loads_single_elements_takes_what_the_padded_product_would():
    facts = recording()
    (found,) = find(facts)
    assert found.edit is not None
    assert found.edit.work_kept_ns.tolist() == [int(PADDED_US * 1000 / 0.75)] * 3
    assert "1,001 is no multiple of 8" in found.message
    assert "1,024 instead of 1,001" in found.fix
    assert (found.count, found.spent_ns, found.evidence["dimension"]) == (1, 60_000, 1001)


def test_other_products_of_the_recording_tell_what_share_of_the_peak_is_reached():
    """4096^3 take 440.5 µs at the peak."""
    large = [[4096, 4096], [4096, 4096]]
    events = [
        event
        for i in range(3)
        for event in (
            step(i, 1000 * i, 1000),
            *product(1000 * i + 5, BY_ELEMENT, 2 * i + 1),
            *product(1000 * i + 16, FAST, 2 * i + 2, large, us=881, queued=60),
            runtime("cudaDeviceSynchronize", 1000 * i + 30, 928),
        )
    ]
    (found,) = find(facts_of(events, deviceProperties=A100))
    assert found.edit is not None
    assert found.edit.work_kept_ns[0] == pytest.approx(PADDED_US * 1000 * 2, rel=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(FAST, id="a kernel that loads 16 bytes"),
        pytest.param("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8", id="eight elements"),
        pytest.param("nvjet_sm90_tst_256x160_64x4_1x2_h_bz_coopA_NNT", id="a kernel that says nothing"),
        pytest.param("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(Params)", id="no tiles"),
        pytest.param("void splitKreduce_kernel<32, 16, int, float, align1>(Params)", id="a sum of parts"),
    ],
)
def test_an_odd_shape_alone_is_silent(name):
    """Which of the dimensions is the length of a row depends on the layout, which no recording holds."""
    assert find(recording(name)) == []


@pytest.mark.parametrize(
    ("name", "kind", "reported"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", "float", 0),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align2", "float", 1),
        (
            "sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize64x128x32_stage5_warpsize2x2x1_tensor16x8x16_aligna8_alignc8",
            "c10::BFloat16",
            0,
        ),
        (
            "sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize64x128x32_stage5_warpsize2x2x1_tensor16x8x16_aligna2_alignc2",
            "c10::BFloat16",
            1,
        ),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", "double", 0),
    ],
)
def test_sixteen_bytes_are_four_elements_of_tf32_and_eight_of_16_bits(name, kind, reported):
    assert len(find(recording(name, kind=kind))) == reported


@pytest.mark.parametrize(("dims", "reported"), [(ODD, 1), (EVEN, 0)])
def test_a_kernel_without_tiles_on_16_bits_is_one_only_with_an_odd_dimension(dims, reported):
    """A Volta does without the units for tiles also where a program asks for it."""
    volta = [{"id": 0, "name": "Tesla V100-SXM2-16GB"}]
    facts = recording("volta_fp16_sgemm_fp16_128x128_nt", volta, dims=dims, kind="c10::Half")
    assert len(find(facts)) == reported


def test_even_dimensions_whose_kernel_loads_single_elements_are_those_of_a_slice():
    (found,) = find(recording(dims=EVEN))
    assert "slice" in found.message
    assert "contiguous" in found.fix
    assert found.confidence == 0.8


@pytest.mark.parametrize(
    ("dims", "known"),
    [
        pytest.param([[141, 512], [512, 30522]], "30,522 is", id="the number of rows is no length of a row"),
        pytest.param([[30522, 64], [64, 64]], "30,522 is", id="unless the factor is transposed"),
        pytest.param([[512, 141], [141, 30522]], "141 and 30,522 are", id="the inner dimension may be"),
    ],
)
def test_the_dimensions_that_are_told_are_lengths_of_rows(dims, known):
    (found,) = find(recording(dims=dims))
    assert known in found.message


def test_a_short_product_bound_by_its_launch_is_silent():
    """It takes half a per cent of the step, padded next to nothing."""
    assert find(recording(us=0.5, dims=[[16, 16], [16, 17]])) == []
    assert len(find(recording(us=3, dims=[[16, 16], [16, 17]]))) == 1


def test_a_product_that_already_keeps_up_with_padded_ones_is_silent():
    assert find(recording(us=PADDED_US / 0.75)) == []


def test_behind_a_host_that_is_busy_the_kernel_costs_nothing():
    events = [
        event
        for i in range(3)
        for event in (
            step(i, 300 * i, 300),
            *product(300 * i + 5, BY_ELEMENT, i + 1),
            op("aten::sort", 300 * i + 20, 270),
        )
    ]
    assert find(facts_of(events, deviceProperties=A100)) == []


def test_a_convolution_is_none_of_its_products():
    dims = [[64, 3, 224, 224], [64, 3, 7, 7]]
    name = "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align2"
    assert find(recording(name, dims=dims, operator="aten::cudnn_convolution")) == []


def test_the_line_is_that_of_the_forward_product():
    sites = tuple(CallSite("a.py", line, "f") for line in (10, 20))
    forward = [op("aten::relu", 5, 5, sequence=1), op("aten::mm", 12, 10, sequence=2)]
    node = op("autograd::engine::evaluate_function: MmBackward0", 40, 20, sequence=2)

    def backward(at: float, correlation: int) -> list[Json]:
        shifted = {**node, "ts": at}
        return [shifted, op("MmBackward0", at + 1, 18, sequence=2), *product(at + 2, BY_ELEMENT, correlation)]

    first = [step(0, 0, 200), mark(0, 4, 7), mark(1, 11, 12), *forward, *backward(40, 1)]
    later = [
        event
        for i in (1, 2)
        for event in (
            step(i, 200 * i, 200),
            *({**one, "ts": one["ts"] + 200 * i} for one in forward),
            *backward(200 * i + 40, i + 1),
            runtime("cudaDeviceSynchronize", 200 * i + 70, 120),
        )
    ]
    (found,) = find(facts_of([*first, *later], callsites=sites, deviceProperties=A100))
    assert found.location is not None
    assert found.location.line == 20


def test_an_unknown_gpu_is_not_judged():
    with pytest.raises(CannotLook, match="no data sheet"):
        find(recording(devices=[{"id": 0, "name": "Mystery 9000"}]))


def test_without_shapes_or_a_device_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 10, 60)])
    assert missing_needs(facts, misaligned_matmul.needs) == [Need.DEVICE, Need.SHAPES]


def test_the_saving_is_what_the_replayed_step_gets_shorter():
    facts = recording()
    (found,) = find(facts)
    assert found.edit is not None
    assert predict_saving(facts, found.edit).fraction == pytest.approx((60 - PADDED_US / 0.75) / 100, abs=0.01)


TENSILE = "Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_MI16x16x16x1_SN_ELFLR0_GLVWA4_GLVWB4_GRCGA1_GSU1_ISA942"
MI300X = [{"id": 0, "name": "AMD Instinct MI300X"}]
"""1,307.4 TFLOP/s in bfloat16, of which large products reach 0.54."""


def test_tensiles_names_tell_how_much_a_thread_loads():
    facts = recording(TENSILE, MI300X)
    (found,) = find(facts)
    assert "1,001 is no multiple of 8" in found.message
    kept_us = 2 * 1000 * 1000 * 1024 / 1307.4e6 / 0.54
    assert found.edit is not None
    assert found.edit.work_kept_ns[0] == pytest.approx(1000 * kept_us, rel=0.01)


def test_tensiles_kernels_with_wide_loads_or_even_sizes_are_silent():
    assert find(recording(TENSILE.replace("GLVWA4_GLVWB4", "GRVWA8_GRVWB8"), MI300X)) == []
    assert find(recording(TENSILE, MI300X, dims=EVEN)) == []
