"""The scratch memory of a sum on a GPU.

If few columns of many rows are added up, as for the gradient of a bias, several thread blocks share each column and
leave partial sums in global memory. For 8,192 rows of 1,024 that is twice as much as the rows themselves. The sizes
follow aten/src/ATen/native/cuda/Reduce.cuh (`setReduceConfig`, `global_memory_size`), and equal those recorded by an
H100's allocator to the byte.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor

_THREADS, _WARP, _WIDEST_VECTOR = 512, 32, 4
_LEAST_VALUES, _MOST_VALUES = 16, 256
"""Per thread."""
_PARTIAL_BYTES, _SEMAPHORE_BYTES = 4, 4
"""Partial sums are float32, even for narrower types."""
_REDUCTIONS = frozenset(("sum", "mean"))


class Processors(NamedTuple):
    """A GPU's multiprocessors, and the threads of each."""

    multiprocessors: int
    threads: int


PROCESSORS = {"cuda": Processors(108, 2048), "hopper": Processors(132, 2048)}
"""An A100 and an H100."""


def scratch_of(func: Any, arguments: tuple[Any, ...], processors: Processors) -> tuple[int, ...]:
    """The sizes of the memory that an operator takes until its end. Only sums over leading dimensions take any."""
    if func.overloadpacket.__name__ not in _REDUCTIONS or len(arguments) < 2:
        return ()
    data, given = arguments[:2]
    if not isinstance(data, Tensor) or not isinstance(given, (list, tuple)):
        return ()
    if not data.is_contiguous() or not data.numel() or data.element_size() > _PARTIAL_BYTES:
        return ()
    summed = sorted(one % data.dim() for one in given)
    if not summed or len(summed) == data.dim() or summed != list(range(len(summed))):
        return ()
    return scratch_of_columns(math.prod(data.shape[: len(summed)]), math.prod(data.shape[len(summed) :]), processors)


def scratch_of_columns(rows: int, columns: int, processors: Processors) -> tuple[int, ...]:
    """Partial sums and semaphores for adding up ``rows`` in each of ``columns``; empty if one block does a column."""
    vector = math.gcd(columns, _WIDEST_VECTOR)
    threads = _THREADS // vector
    width, height = _shape_block(columns // vector, rows, threads)
    if rows < min(height * _LEAST_VALUES, _MOST_VALUES):
        return ()
    per_thread = -(-rows // height)
    grid = -(-(columns // vector) // width)
    target = processors.multiprocessors * (processors.threads // (width * height))
    if per_thread < _MOST_VALUES or grid > target:
        return ()
    blocks = max(min(-(-target // grid), -(-per_thread // _LEAST_VALUES)), -(-per_thread // _MOST_VALUES))
    if blocks <= 1:
        return ()
    return _PARTIAL_BYTES * columns * blocks * width * vector, _SEMAPHORE_BYTES * grid


def _shape_block(across: int, down: int, threads: int) -> tuple[int, int]:
    """Columns and rows of threads, in powers of two: first a warp across, then down, then across again."""
    widest, highest = (min(1 << (one.bit_length() - 1), threads) for one in (across, down))
    height = min(highest, threads // min(widest, _WARP))
    return min(widest, threads // height), height
