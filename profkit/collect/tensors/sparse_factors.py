"""Which products of matrices have a factor that is nearly all zeros.

A factor is read when the program asks for the product: some rows of it, where they lie, so that no operator runs. Those
on a device are not looked at. Not kept: factors with gradients, which a sparse product would need too; rows with at
most one number each, as one-hot vectors have: those pick rows, and need no product at all; and results of activations,
whose numbers are computed before one knows which are zeros. A factor that `to_dense` has made was sparse before, so
less of it has to be zeros, and its rows may be one-hot: nobody has to find another form for it.

Where some calls were passed by, one of them may have been an activation. Then a factor only counts if a call that was
looked at gave it its memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch._C import TensorBase

from profkit.collect.tensors.identities import Memory
from profkit.collect.tensors.in_memory import read_bits
from profkit.run.directory import SparseFactor

_PRODUCTS = frozenset(("__matmul__", "linear", "matmul", "mm"))
_ACTIVATES = frozenset(("hardshrink", "relu", "relu6", "rrelu", "softshrink", "threshold"))
"""By their names without underscores, which forms that write in place have, and PyTorch's inner ones."""
_LEAST_ZERO = 0.98
"""Of the numbers. A sparse product takes some twenty times as long for each number that it does multiply."""
_LEAST_ZERO_OF_SPARSE = 0.95
"""Above that, twenty times as long for each number is more than a dense product takes."""
_LEAST_NUMBERS = 1 << 16
"""A factor with fewer is multiplied in microseconds."""
_MAKES_DENSE = "to_dense"
_ROWS, _MOST_READ = 64, 1 << 21
"""Rows of a factor that are read, and numbers in all: a million takes a millisecond or two."""


class FactorWatch:
    """`note` is told each call before it runs, and `note_results` afterwards; ``found`` are the products with such a
    factor."""

    def __init__(self) -> None:
        self.found: list[SparseFactor] = []
        self._activated: set[Memory] = set()
        self._was_sparse: set[Memory] = set()
        self._made: set[Memory] = set()
        self._read = 0

    def note_results(self, name: str, taken: Iterable[Memory], memories: Collection[Memory]) -> None:
        self._made.update(set(memories).difference(taken))
        if name.strip("_") in _ACTIVATES:
            self._activated.update(memories)
        elif name == _MAKES_DENSE:
            self._was_sparse.update(memories)

    def note(self, call: int, name: str, given: Sequence[tuple[Memory, Tensor]], *, is_whole: bool) -> None:
        """``given`` are the tensors of the call with this number. ``is_whole`` says that all earlier calls were seen."""
        if name not in _PRODUCTS or len(given) < 2:
            return
        factors = given[:1] if name == "linear" else given[:2]
        for memory, factor in factors:
            was_sparse = memory in self._was_sparse
            is_known = memory not in self._activated and (is_whole or memory in self._made)
            zero = self._share_of_zeros(factor, was_sparse) if is_known else None
            if zero is not None and zero >= (_LEAST_ZERO_OF_SPARSE if was_sparse else _LEAST_ZERO):
                self.found.append(SparseFactor(call, tuple(factor.shape), zero, was_sparse))
                return

    def _share_of_zeros(self, factor: Tensor, was_sparse: bool) -> float | None:
        is_dense = TensorBase.dim(factor) == 2 and factor.dtype.is_floating_point and factor.device.type == "cpu"
        if not is_dense or factor.requires_grad or TensorBase.numel(factor) < _LEAST_NUMBERS:
            return None
        bits = read_bits(factor)
        if bits is None:
            return None
        rows = bits[_places(len(bits))]
        if self._read + rows.size > _MOST_READ:
            return None
        self._read += rows.size
        used = (rows & rows.dtype.type(np.iinfo(rows.dtype).max >> 1)) != 0  # the sign of a zero does not count
        picks_rows = bool((used.sum(axis=1) <= 1).all())
        return None if picks_rows and not was_sparse else float(1 - used.mean())


def _places(count: int) -> NDArray[np.int64]:
    """Rows to read, one at random of each stretch: equal distances would meet the same kind of a regular pattern."""
    bounds = np.linspace(0, count, min(_ROWS, count) + 1).astype(np.int64)
    return np.random.default_rng(0).integers(bounds[:-1], bounds[1:])  # the program's generators stay as they are
