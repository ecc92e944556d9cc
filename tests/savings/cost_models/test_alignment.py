"""Which matrices can be loaded 16 bytes at once, and what products of the others take."""

from __future__ import annotations

import pytest

from profkit.run.directory import Rates
from profkit.savings.cost_models.alignment import is_misaligned, misaligned_least_ns, padded
from profkit.savings.cost_models.roofline import Product, product_of

RATES = Rates("gpu", 1e12, {"bfloat16": 1e15, "tf32": 5e14})


@pytest.mark.parametrize(
    ("product", "item_bytes", "expected"),
    [
        pytest.param(Product(1, 16, 8, 8), 2, False, id="8 elements of 16 bits"),
        pytest.param(Product(1, 16, 8, 4), 2, True, id="4 of 16 bits"),
        pytest.param(Product(1, 16, 8, 4), 4, False, id="4 of 32 bits"),
        pytest.param(Product(1, 16, 9, 8), 2, True, id="the inner dimension"),
        pytest.param(Product(7, 9, 8, 8), 2, False, id="neither the rows nor the batch"),
    ],
)
def test_rows_are_aligned_whose_length_is_a_multiple_of_16_bytes(product, item_bytes, expected):
    assert is_misaligned(product, item_bytes) is expected


def test_tf32_loads_as_many_elements_as_16_bits_do():
    assert misaligned_least_ns(1.16e14, RATES, "bfloat16") == pytest.approx(1e9)
    assert misaligned_least_ns(1.16e14, RATES, "tf32") == pytest.approx(1e9)


def test_of_a_type_without_a_rate_nothing_is_known():
    assert misaligned_least_ns(1e14, RATES, "float16") == 0


@pytest.mark.parametrize(("size", "item_bytes", "expected"), [(50257, 2, 50304), (50257, 4, 50272), (64, 2, 64)])
def test_padding_fills_lines_of_128_bytes(size, item_bytes, expected):
    assert padded(size, item_bytes) == expected


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("aten::mm", "[[2,3],[3,4]]", Product(1, 2, 3, 4)),
        ("aten::mm", "[[2,3],[3,4],[2,4]]", Product(1, 2, 3, 4)),
        ("aten::addmm", "[[4],[2,3],[3,4],[],[]]", Product(1, 2, 3, 4)),
        ("aten::addmm", "[[4],[2,3],[3,4],[],[],[2,4]]", Product(1, 2, 3, 4)),
        ("aten::bmm", "[[5,2,3],[5,3,4]]", Product(5, 2, 3, 4)),
        ("aten::linear", "[[2,3],[4,3],[4]]", Product(1, 2, 3, 4)),
        ("aten::mm", "[[2,3],[5,4]]", None),
        ("aten::add", "[[2,3],[2,3]]", None),
        ("aten::mm", "[[0,3],[3,4]]", None),
    ],
)
def test_the_sizes_of_a_product_are_read_from_its_shapes(name, dims, expected):
    """What follows the factors is where the result goes."""
    assert product_of(name, dims) == expected
