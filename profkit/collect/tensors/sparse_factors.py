"""Which products of matrices have a factor that is nearly all zeros.

A factor is read when the program asks for the product: some rows of it, where they lie, so that no operator runs. Those
on a device are not looked at. Not kept: factors with gradients, which a sparse product would need too, and rows with at
most one number each, as one-hot vectors have: those pick rows, and need no product at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch._C import TensorBase

from profkit.collect.tensors.in_memory import read_bits
from profkit.run.directory import SparseFactor

_PRODUCTS = frozenset(("__matmul__", "linear", "matmul", "mm"))
_LEAST_ZERO = 0.98
"""Of the numbers. A sparse product takes some twenty times as long for each number that it does multiply."""
_LEAST_NUMBERS = 1 << 16
"""A factor with fewer is multiplied in microseconds."""
_ROWS, _MOST_READ = 64, 1 << 21
"""Rows of a factor that are read, and numbers in all: a million takes a millisecond or two."""


class FactorWatch:
    """`note` is told each call before it runs; ``found`` are the products with such a factor."""

    def __init__(self) -> None:
        self.found: list[SparseFactor] = []
        self._read = 0

    def note(self, call: int, name: str, given: Sequence[Tensor]) -> None:
        """``given`` are the tensors of the call with this number."""
        if name not in _PRODUCTS or len(given) < 2:
            return
        factors = given[:1] if name == "linear" else given[:2]
        for factor in factors:
            zero = self._share_of_zeros(factor)
            if zero is not None and zero >= _LEAST_ZERO:
                self.found.append(SparseFactor(call, tuple(factor.shape), zero))
                return

    def _share_of_zeros(self, factor: Tensor) -> float | None:
        is_dense = TensorBase.dim(factor) == 2 and factor.dtype.is_floating_point and factor.device.type == "cpu"
        if not is_dense or factor.requires_grad or TensorBase.numel(factor) < _LEAST_NUMBERS:
            return None
        bits = read_bits(factor)
        if bits is None:
            return None
        rows = bits[np.linspace(0, len(bits) - 1, min(_ROWS, len(bits))).astype(np.int64)]
        if self._read + rows.size > _MOST_READ:
            return None
        self._read += rows.size
        used = (rows & rows.dtype.type(np.iinfo(rows.dtype).max >> 1)) != 0  # the sign of a zero does not count
        return None if (used.sum(axis=1) <= 1).all() else float(1 - used.mean())
