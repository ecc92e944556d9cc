"""The scratch memory of sums on a GPU: as an H100's allocator recorded it, and sums that need none."""

from __future__ import annotations

import pytest
import torch

from profkit.memory_planner.reductions import PROCESSORS, scratch_of, scratch_of_columns

H100 = PROCESSORS["hopper"]
SUM = torch.ops.aten.sum.dim_IntList


def test_the_gradient_of_a_bias_takes_as_much_as_an_h100_recorded():
    """256 vectors of four columns; blocks of 32 x 4 threads, so 2,048 values per thread: 128 blocks per column."""
    assert scratch_of_columns(8192, 1024, H100) == (67_108_864, 32)


def test_with_many_columns_the_multiprocessors_limit_the_blocks():
    """512 vectors are 16 blocks across; 132 multiprocessors hold 16 blocks each: 132 per column instead of 256."""
    assert scratch_of_columns(16384, 2048, H100) == (4 * 2048 * 132 * 32 * 4, 64)


@pytest.mark.parametrize(("rows", "columns"), [(512, 1024), (1020, 1024), (1, 1024), (8192, 1 << 22)])
def test_few_rows_or_very_many_columns_take_nothing(rows, columns):
    assert scratch_of_columns(rows, columns, H100) == ()


def test_blocks_share_a_column_from_256_values_per_thread():
    assert scratch_of_columns(1020, 1024, H100) == ()
    assert scratch_of_columns(1021, 1024, H100) == (4 * 1024 * 16 * 128, 32)


def test_an_odd_number_of_columns_is_read_one_by_one():
    """32 blocks of 32 x 16 threads across; 132 multiprocessors hold four each, which makes 17 per column."""
    assert scratch_of_columns(8192, 1023, H100) == (4 * 1023 * 17 * 32, 128)


def test_leading_dimensions_count_as_one():
    data = torch.empty(8, 1024, 1024)
    assert scratch_of(SUM, (data, [0, 1]), H100) == scratch_of_columns(8192, 1024, H100)
    assert scratch_of(SUM, (data, [0, -2], True), H100) == scratch_of_columns(8192, 1024, H100)


@pytest.mark.parametrize("dimensions", [[2], [1, 2], [0, 1, 2], [0, 2], []])
def test_other_sums_take_nothing(dimensions):
    assert scratch_of(SUM, (torch.empty(64, 64, 64), dimensions), H100) == ()


def test_other_operators_take_nothing():
    assert scratch_of(torch.ops.aten.amax.default, (torch.empty(8192, 1024), [0]), H100) == ()
    assert scratch_of(torch.ops.aten.sum.default, (torch.empty(8192, 1024),), H100) == ()
