"""The roofline: operations and elements of the recorded calls, and the longer of the two times."""

from __future__ import annotations

import pytest

from profkit.run.directory import Rates
from profkit.savings.cost_models.roofline import Work, is_convolution, work_of

RATES = Rates("some", 1e9, {"float64": 1e9, "float32": 4e9, "tf32": 16e9})
"""A gigabyte a second, and one operation for each byte of it in doubles."""


@pytest.mark.parametrize(
    ("name", "dims", "operations", "elements"),
    [
        ("aten::mm", "[[2,3],[3,5]]", 60, 6 + 15 + 10),
        ("aten::addmm", "[[5],[2,3],[3,5],[],[]]", 60, 5 + 6 + 15 + 10),
        ("aten::bmm", "[[7,2,3],[7,3,5]]", 420, 7 * (6 + 15 + 10)),
        ("aten::baddbmm", "[[7,2,5],[7,2,3],[7,3,5]]", 420, 7 * (10 + 6 + 15 + 10)),
        ("aten::matmul", "[[4,1,2,3],[7,3,5]]", 28 * 60, 24 + 105 + 280),
        ("aten::matmul", "[[2,3],[3]]", 12, 6 + 3 + 2),
        ("aten::linear", "[[4,2,3],[5,3],[5]]", 240, 24 + 15 + 5 + 40),
    ],
)
def test_products_take_two_operations_for_each_row_column_and_inner_index(name, dims, operations, elements):
    assert work_of(name, dims) == Work(operations, elements, True)


def _settings(stride: str = "[1, 1]", padding: str = "[0, 0]", dilation: str = "[1, 1]", more: str = '"1"') -> str:
    return f'["", "", "", "{stride}", "{padding}", "{dilation}", {more}]'


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        (_settings(), 6),
        (_settings(padding="[1, 1]"), 8),
        (_settings(stride="[2, 2]"), 3),
        (_settings(stride="[2]"), 3),
        (_settings(dilation="[2, 2]"), 4),
    ],
)
def test_a_convolution_takes_two_operations_for_each_result_and_weight(settings, size):
    found = work_of("aten::conv2d", "[[2,3,8,8],[5,3,3,3],[],[],[],[],[]]", settings)
    produced = 2 * 5 * size * size
    assert found == Work(2 * produced * 27, 2 * 3 * 64 + 5 * 27 + produced, True)
    assert is_convolution("aten::conv2d")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("aten::conv2d", ""),
        ("aten::conv2d", _settings(padding="same")),
        ("aten::conv2d", _settings(stride="[0, 0]")),
        ("aten::convolution", _settings(more='"True", "[0, 0]", "1"')),
    ],
)
def test_a_convolution_of_unknown_size_has_no_model(name, settings):
    assert work_of(name, "[[2,3,8,8],[5,3,3,3]]", settings) is None


def test_attention_is_two_products_and_moves_no_scores():
    found = work_of("aten::scaled_dot_product_attention", "[[2,4,64,16],[2,4,32,16],[2,4,32,8],[],[],[]]")
    assert found == Work(2 * 8 * 64 * 32 * (16 + 8), 8 * (64 * 16 + 32 * 16 + 32 * 8 + 64 * 8), True)


def test_elementwise_operators_move_their_inputs_and_the_broadcast_result():
    assert work_of("aten::add_", "[[4,5],[5],[]]") == Work(20, 20 + 5 + 20, False)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::sort", "[[4]]"),
        ("CompiledFunction", "[[4]]"),
        ("aten::mm", ""),
        ("aten::mm", "[[2,3],[4,5]]"),
        ("aten::bmm", "[[2,2,3],[5,3,4]]"),
        ("aten::add", "[[4],[5]]"),
        ("aten::linear", "[[2,3]]"),
        ("aten::mm", "[[4611686018427387904,4],[4,4]]"),
        ("aten::add", "[[-4]]"),
    ],
)
def test_what_is_not_known_or_does_not_fit_has_no_model(name, dims):
    assert work_of(name, dims) is None


def test_the_longer_of_arithmetic_and_moving_counts():
    assert Work(100, 10, True).least_ns(RATES, "float64") == pytest.approx(100)
    assert Work(100, 10, True).least_ns(RATES, "float32") == pytest.approx(40)
    assert Work(400, 10, True).least_ns(RATES, "float32") == pytest.approx(100)
    assert Work(400, 1, True).least_ns(RATES, "float32", "tf32") == pytest.approx(25)
    assert Work(400, 10, False).least_ns(RATES, "float64") == pytest.approx(80)


def test_without_a_rate_for_the_type_a_product_has_no_time():
    assert Work(100, 10, True).least_ns(RATES, "bfloat16") is None
    assert Work(100, 10, False).least_ns(RATES, "bfloat16") == pytest.approx(20)


@pytest.mark.parametrize(
    ("mask", "factor"),
    [('"[True, True, True]"', 2), ('"[False, True, True]"', 1), ('"[True, False, False]"', 1), ("", 2)],
)
def test_the_backward_pass_of_a_convolution_makes_the_gradients_that_are_wanted(mask, factor):
    dims = "[[1,5,6,6],[1,3,8,8],[5,3,3,3]]"
    values = f'["", "", "", "[5]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"{mask and ", "}{mask}]'
    forward = work_of("aten::convolution", "[[1,3,8,8],[5,3,3,3]]", _settings())
    found = work_of("aten::convolution_backward", dims, values)
    assert forward is not None
    assert found is not None
    assert found.operations == factor * forward.operations


def test_the_backward_pass_of_attention_has_five_products():
    qkv = "[2,4,8,16],[2,4,8,16],[2,4,8,16]"
    forward = work_of("aten::scaled_dot_product_attention", f"[{qkv}]")
    found = work_of("aten::_scaled_dot_product_flash_attention_for_cpu_backward", f"[[2,4,8,16],{qkv}]")
    assert forward is not None
    assert found is not None
    assert found.operations == 2.5 * forward.operations
