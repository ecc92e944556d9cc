"""Bytes of recorded calls beside what a person counts: each input once, each result once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profkit.derive.device.kernel_families import Family
from profkit.savings.roofline.models import demand_of

F, H, I = "float", "c10::Half", "long int"  # noqa: E741  # as short as the tables below
MB = 1024 * 1024


def _bytes(name: str, dims: list[Any], types: list[str], values: list[str] | None = None) -> float:
    demand = demand_of(name, json.dumps(dims), json.dumps(types), json.dumps(values or [""] * len(dims)))
    assert demand is not None
    return demand.bytes


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "truth"),
    [
        ("aten::mm", [[256, 512], [512, 128]], [F, F], None, 4 * (256 * 512 + 512 * 128 + 256 * 128)),
        ("aten::mm", [[256, 512], [512, 128]], [H, H], None, 2 * (256 * 512 + 512 * 128 + 256 * 128)),
        ("aten::addmm", [[128], [256, 512], [512, 128]], [F] * 3, None, 4 * (128 + 256 * 640 + 512 * 128)),
        ("aten::linear", [[8, 32, 512], [64, 512], [64]], [F] * 3, None, 4 * (256 * 512 + 64 * 513 + 256 * 64)),
        ("aten::bmm", [[4, 8, 16], [4, 16, 32]], [F, F], None, 4 * 4 * (128 + 512 + 256)),
        ("aten::mv", [[64, 32], [32]], [F, F], None, 4 * (64 * 32 + 32 + 64)),
        (
            "aten::_scaled_mm",
            [[64, 32], [32, 16], [], [], [], [], []],
            ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", F, F, "", "", ""],
            ["", "", "", "", "", "", "15"],
            64 * 32 + 32 * 16 + 8 + 2 * 64 * 16,
        ),
        (
            "aten::convolution",
            [[4, 8, 20, 20], [16, 8, 3, 3]],
            [F, F],
            ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
            4 * (4 * 8 * 400 + 16 * 72 + 4 * 16 * 400),
        ),
        (
            "aten::scaled_dot_product_attention",
            [[2, 8, 64, 16], [2, 2, 64, 16], [2, 2, 64, 16], [], [], []],
            [H, H, H, "", "Scalar", "Scalar"],
            ["", "", "", "", "0.", "True"],
            2 * (2 * 8 * 64 * 16 * 2 + 2 * 2 * 2 * 64 * 16),
        ),
        ("aten::add", [[1024, 1024], [1024, 1024], []], [F, F, "Scalar"], None, 12 * MB),
        ("aten::add", [[1024, 1024], [1024], []], [F, F, "Scalar"], None, 8 * MB),
        ("aten::add_", [[1024, 1024], [1024, 1024], []], [F, F, "Scalar"], None, 12 * MB),
        ("aten::mul", [[1024, 1024], []], [F, "Scalar"], None, 8 * MB),
        ("aten::gt", [[1024, 1024], []], [F, "Scalar"], None, 5 * MB),
        ("aten::relu", [[1024, 1024]], [H], None, 4 * MB),
        ("aten::native_dropout", [[1024, 1024], [], []], [F, "Scalar", "Scalar"], None, 9 * MB),
        ("aten::threshold_backward", [[1024, 1024], [1024, 1024], []], [F, F, "Scalar"], None, 12 * MB),
        ("aten::native_layer_norm", [[64, 1024], [], [1024], [1024], []], [F, "", F, F, ""], None, 4 * 130 * 1024),
        ("aten::native_batch_norm", [[8, 4, 64, 64], [4], [4], [4], [4]], [F] * 5, None, 8 * 8 * 4 * 64 * 64),
        ("aten::_softmax", [[64, 1024], [], []], [F, "Scalar", "Scalar"], ["", "-1", "False"], 8 * 64 * 1024),
        ("aten::_softmax", [[64, 1024], [], []], [H, "Scalar", "Scalar"], ["", "-1", "True"], 6 * 64 * 1024),
        ("aten::_log_softmax_backward_data", [[64, 100], [64, 100], [], []], [F, F, "", ""], None, 12 * 6400),
        ("aten::sum", [[64, 1024], [], [], []], [F, "", "", ""], ["", "[0]", "False", ""], 4 * 65 * 1024),
        ("aten::mean", [[64, 1024], []], [F, ""], None, 4 * 64 * 1024),
        ("aten::copy_", [[64, 1024], [64, 1024], []], [H, F, ""], None, 6 * 64 * 1024),
        ("aten::fill_", [[64, 1024], []], [F, "Scalar"], None, 4 * 64 * 1024),
        ("aten::cat", [[[64, 1024], [32, 1024]], []], ["TensorList", "Scalar"], None, 8 * 96 * 1024),
        ("aten::embedding", [[50000, 512], [8, 16]], [F, I], None, 128 * 8 + 2 * 128 * 2048),
        (
            "aten::embedding_dense_backward",
            [[8, 16, 512], [8, 16], [], [], []],
            [F, I, "Scalar", "Scalar", "Scalar"],
            ["", "", "1000", "-1", "False"],
            128 * 2048 + 128 * 8 + 128 * 2048,
        ),
        (
            "aten::embedding_dense_backward",
            [[64, 16, 512], [64, 16], [], [], []],
            [F, I, "Scalar", "Scalar", "Scalar"],
            ["", "", "100", "-1", "False"],
            1024 * 2048 + 1024 * 8 + 100 * 2048,
        ),
        (
            "aten::_index_put_impl_",
            [[500, 64], [[100]], [100, 64], [], []],
            [F, "TensorList", F, "Scalar", "Scalar"],
            ["", "", "", "True", "True"],
            3 * 100 * 256 + 800,
        ),
        (
            "aten::index_put_",
            [[500, 64], [[100]], [100, 64], []],
            [F, "TensorList", F, "Scalar"],
            ["", "", "", "False"],
            2 * 100 * 256 + 800,
        ),
        (
            "aten::scatter_reduce_",
            [[500, 64], [], [100, 64], [100, 64], []],
            [F, "Scalar", I, F, ""],
            ["", "0", "", "", "sum"],
            3 * 100 * 256 + 100 * 64 * 8,
        ),
        ("aten::index_select", [[50000, 64], [], [100]], [F, "Scalar", I], ["", "0", ""], 2 * 100 * 256 + 800),
        ("aten::gather", [[64, 100], [], [64, 1]], [F, "Scalar", I], ["", "1", ""], 64 * 8 + 64 * 8),
        ("aten::index_add_", [[500, 64], [], [100], [100, 64]], [F, "Scalar", I, F], None, 3 * 100 * 256 + 800),
        (
            "aten::_fused_adam_",
            [[[512, 512]], [[512, 512]], [[512, 512]], [[512, 512]], [], [[]]],
            ["TensorList"] * 6,
            None,
            7 * MB,
        ),
        (
            "triton_poi_fused_add_gelu_3",
            [[1024, 1024], [1024], [1024, 1024], []],
            ["c10::BFloat16", F, "c10::BFloat16", "Scalar"],
            None,
            4 * MB,
        ),
        ("aten::_fused_sgd_", [[[512, 512]], [[512, 512]], []], ["TensorList"] * 3, None, 3 * MB),
        ("aten::_foreach_add_", [[[512, 512]], [[512, 512]], []], ["TensorList", "TensorList", "Scalar"], None, 3 * MB),
    ],
)
def test_bytes_are_those_that_a_person_counts(name, dims, types, values, truth):
    assert _bytes(name, dims, types, values) == pytest.approx(truth, rel=0.05)


_MASK = ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


def test_the_backward_of_a_convolution_moves_what_each_wanted_gradient_needs():
    dims = [[4, 16, 20, 20], [4, 8, 20, 20], [16, 8, 3, 3], [], [], [], [], [], [], [], []]
    types = [F, F, F, *[""] * 8]
    out, image, weight = 4 * 4 * 16 * 400, 4 * 4 * 8 * 400, 4 * 16 * 72
    both = _bytes("aten::convolution_backward", dims, types, [*_MASK, "[True, True, False]"])
    only = _bytes("aten::convolution_backward", dims, types, [*_MASK, "[False, True, False]"])
    assert both == 2 * out + 2 * image + 2 * weight
    assert only == out + image + weight


def test_a_layer_of_experts_reads_those_that_a_token_reaches():
    dims = [[4, 64], [8, 256, 64], [8, 64, 128], [4, 2]]
    demand = demand_of("vllm::some_fused_moe", json.dumps(dims), json.dumps(["c10::BFloat16"] * 3 + [F]), "[]")
    assert demand is not None
    assert demand.kind is Family.EXPERTS
    each = 256 * 64 + 64 * 128
    assert demand.operations == 2 * 8 * each
    reached = 8 * (1 - (7 / 8) ** 8)
    assert demand.bytes == pytest.approx(2 * reached * each + 2 * 2 * 4 * 64 + 4 * 8)


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("aten::mm", [[4, 5], [6, 7]], [F, F]),
        ("aten::convolution", [[4, 8, 20, 20], [16, 8, 3, 3]], [F, F]),
        ("vllm::moe_forward", [[4, 64], [4, 8]], [F, F]),
        ("aten::nonzero", [[4, 5]], [F]),
        ("aten::mm", [[4, 5], [5, 6]], []),
        ("aten::mm", [[4, 5], [5, 6]], ["c10::complex<float>", "c10::complex<float>"]),
        ("aten::mm", [[4, 5], [5, 6]], ["c10::Float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2"]),
        ("aten::scaled_dot_product_attention", [[2, 4, 8, 16]] * 3, []),
        ("aten::add", [], []),
        ("aten::scaled_dot_product_attention", [[4, 5]], [F]),
        ("aten::_foreach_add_", [[], [], []], ["TensorList", "TensorList", "Scalar"]),
        ("aten::_foreach_mul_", [[], []], ["TensorList", "float"]),
        ("aten::cat", [[], []], ["TensorList", "Scalar"]),
        ("triton_poi_fused_embedding_0", [[50000, 512], [128], [128, 512], []], [F, I, F, "Scalar"]),
        ("triton_tem_fused_mm_0", [[64, 64], [64, 64], [64, 64]], [F, F, F]),
    ],
)
def test_what_shapes_do_not_tell_has_no_demand(name, dims, types):
    assert demand_of(name, json.dumps(dims), json.dumps(types), "[]") is None
    assert demand_of(name, "{", "[", "") is None


@pytest.mark.parametrize(
    ("dims", "values"),
    [
        ([[4, 8, 20, 20], [16, 8, 3, 3]], ["", "", "", "[0, 0]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]),
        ([[4, 8, 20, 20], [16, 8, 3, 3]], ["", "", "", "[1, 1]", f"[{'9' * 400}]", "[1, 1]", "False", "[0, 0]", "1"]),
        ([[4, 8, 2, 2], [16, 8, 3, 3]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]),
        ([[4, 8, 20, 20], [16, 8, 3, 3]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "0"]),
        ([[-4, 8, 20, 20], [True, None, 3, 3]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]),
    ],
)
def test_settings_that_no_convolution_has(dims, values):
    types = json.dumps([F, F, *[""] * 7])
    assert demand_of("aten::convolution", json.dumps(dims), types, json.dumps(values)) is None


def test_the_factors_have_the_type_of_a_product():
    """Its summand may be wider: ``torch.addmm(float32, bfloat16, bfloat16, out_dtype=torch.float32)``."""
    demand = demand_of("aten::addmm", "[[6], [4, 5], [5, 6]]", json.dumps([F, "c10::BFloat16", "c10::BFloat16"]), "[]")
    assert demand is not None
    assert demand.type == "bfloat16"
