"""Sums at places that an index names: far below the memory's rate, and as usual."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.slow_scatter import slow_scatter
from tests.rules.roofs import H100, found, on_device, saved
from tests.savings.roofline.launching import call
from tests.traces import facts_of, step

F, I = "float", "long int"  # noqa: E741  # as short as the calls below
ATOMIC = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true>()"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<>()"
ADD = ("aten::index_add_", [[8, 64], [], [1_000_000], [1_000_000, 64]], [F, "Scalar", I, F], ["", "0", "", ""])
"""A million rows for eight places: 776 MB, 231.6 µs at 3.35 TB/s."""
PUT = (
    "aten::_index_put_impl_",
    [[1000, 64], [[1_000_000]], [1_000_000, 64], [], []],
    [F, "TensorList", F, "Scalar", "Scalar"],
    ["", "", "", "True", "True"],
)
LOOKUP = (
    "aten::embedding_dense_backward",
    [[1_000_000, 64], [1_000_000], [], [], []],
    [F, I, "Scalar", "Scalar", "Scalar"],
    ["", "", "1000", "-1", "False"],
)
"""264 MB: 78.9 µs."""


def recording(us: float, one: tuple[Any, ...] = ADD, *more: str, card: str = H100, idle: float = 0.0) -> Facts:
    name, dims, types, values = one
    kernels = [(kernel, 1.0) for kernel in more] + [(ATOMIC, us - len(more))]
    return on_device(call(name, dims, types, *kernels, values=values), card=card, idle=idle)


def test_a_million_rows_for_eight_places_are_found():
    facts = recording(23_160)
    (one,) = found(slow_scatter, facts)
    assert "1 scattered sum a step takes 23.2 ms at 1.0 % of the memory's rate" in one.message
    assert "64,000,000 numbers are added up in 512 places, and those for one place wait" in one.message
    assert "one-hot" in one.fix
    assert saved(facts, one) == pytest.approx((23_160 - 231.6 / 0.15) / 23_190, abs=0.01)


def test_a_sort_is_named():
    (one,) = found(slow_scatter, recording(23_160, PUT, SORT))
    assert "the indices are sorted first in every step" in one.message
    assert "gather" in one.fix


def test_the_gradient_of_an_embedding_counts():
    (one,) = found(slow_scatter, recording(7_890, LOOKUP, SORT))
    assert "64,000,000 numbers are added up in 64,000 places" in one.message
    assert "padding_idx" in one.fix


@pytest.mark.parametrize("rows", ["-5", "0", "9" * 30])
def test_a_table_of_impossible_length_is_none(rows):
    name, dims, types, values = LOOKUP
    assert found(slow_scatter, recording(7_890, (name, dims, types, [*values[:2], rows, *values[3:]]), SORT)) == []


def test_a_single_place_and_none():
    name, (_, *dims), types, values = ADD
    (one,) = found(slow_scatter, recording(23_160, (name, [[1], *dims], types, values)))
    assert "numbers are added up in 1 place, and" in one.message
    assert found(slow_scatter, recording(23_160, (name, [[0, 64], *dims], types, values))) == []


def test_assigning_is_no_sum():
    name, dims, types, values = PUT
    assert found(slow_scatter, recording(23_160, (name, dims, types, [*values[:3], "False", "True"]))) == []


def test_at_the_usual_rate_it_is_silent():
    assert found(slow_scatter, recording(1_500)) == []


def test_the_boundary_is_a_twentieth():
    assert found(slow_scatter, recording(4_700))
    assert found(slow_scatter, recording(4_600)) == []


def test_short_ones_take_what_their_kernels_take_to_begin():
    small = ("aten::index_add_", [[8, 64], [], [10_000], [10_000, 64]], [F, "Scalar", I, F], ["", "0", "", ""])
    assert found(slow_scatter, recording(190, small)) == []
    assert found(slow_scatter, recording(210, small))


def test_it_is_silent_where_the_device_idles_for_other_reasons():
    assert found(slow_scatter, recording(5_000, idle=900_000)) == []


def test_an_unknown_card_cannot_be_judged():
    with pytest.raises(CannotLook, match="peak rates"):
        found(slow_scatter, recording(23_160, card="Some GPU"))


def test_shapes_are_needed():
    assert Need.SHAPES in missing_needs(facts_of([step(0, 0, 100)]), slow_scatter.needs)
