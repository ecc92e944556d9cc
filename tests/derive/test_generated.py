"""What the names of generated kernels say: names as PyTorch 2.4 to 2.11 wrote them."""

from __future__ import annotations

import pytest

from profkit.derive.device.generated import parse_generated


@pytest.mark.parametrize(
    ("name", "kind", "operators"),
    [
        ("triton_poi_fused_add_clamp_mul_sigmoid_0", "pointwise", "add clamp mul sigmoid"),
        ("triton_red_fused__softmax_5", "reduction", "_softmax"),
        ("triton_tem_fused_mm_3", "matrix product", "mm"),
        ("triton_for_fused_0", "foreach", ""),
        (
            "triton_per_fused_add_copy__native_layer_norm_tanh_1",
            "persistent reduction",
            "add copy_ native_layer_norm tanh",
        ),
        (
            "triton_poi_fused__to_copy__unsafe_view_add_clone_select_backward_squeeze_15",
            "pointwise",
            "_to_copy _unsafe_view add clone select_backward squeeze",
        ),
        (
            "triton_red_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_transpose_view_9",
            "reduction",
            "_to_copy add native_layer_norm native_layer_norm_backward transpose view",
        ),
        (
            "triton_per_fused__log_softmax__log_softmax_backward_data_nll_loss_forward_0",
            "persistent reduction",
            "_log_softmax _log_softmax_backward_data nll_loss_forward",
        ),
        ("triton_poi_fused_gelu_gelu_backward_view_8", "pointwise", "gelu gelu_backward view"),
        ("triton_poi_fused__to_copy_add__1", "pointwise", "_to_copy add_"),
        ("triton_poi_fused_add__to_copy_1", "pointwise", "add _to_copy"),
    ],
)
def test_the_name_tells_the_kind_and_the_operators(name, kind, operators):
    found = parse_generated(name)
    assert found is not None
    assert (found.kind, " ".join(found.operators)) == (kind, operators)


@pytest.mark.parametrize("name", ["triton__0d1d2de", "triton_xyz_fused_add_0", "triton_poi_fused_add", "sgemm", ""])
def test_other_names_say_nothing_about_a_generated_kernel(name):
    assert parse_generated(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("triton_poi_fused_gelu_view_12", "fused gelu (pointwise)"),
        ("triton_poi_fused_add_add__view_3", "fused add (pointwise)"),
        ("triton_poi_fused_squeeze_view_3", "fused squeeze, view (pointwise)"),
        ("triton_poi_fused_0", "generated kernel (pointwise)"),
    ],
)
def test_views_are_named_only_if_a_kernel_does_nothing_else(name, words):
    assert str(parse_generated(name)) == words
