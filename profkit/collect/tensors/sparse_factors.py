"""Which products of matrices have a factor that is nearly all zeros.

A factor is read when the program asks for the product: some rows of it, where they lie, so that no operator runs. Those
on a device are not looked at. Not kept: factors with gradients, which a sparse product would need too; rows with at
most one number each, unless they are one-hot vectors, which pick rows and need no product at all; and results of
activations, whose numbers are computed before one knows which are zeros. A factor that `to_dense` has made was sparse
before, so less of it has to be zeros, and its rows may be one-hot: nobody has to find another form for it.

Where some calls were passed by, one of them may have been an activation. Then a factor only counts if a call that was
looked at gave it its memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import TensorBase

from profkit.collect.tensors.identities import Memory
from profkit.collect.tensors.in_memory import read_bits
from profkit.run.directory import SparseFactor

_PRODUCTS = frozenset(("__matmul__", "linear", "matmul", "mm"))
_RECURRENT = frozenset(("gru", "lstm", "rnn_relu", "rnn_tanh"))
"""Layers that begin with a product of their input, of which only one-hot vectors are told."""
_ONE = {torch.float32: 0x3F800000, torch.float64: 0x3FF0000000000000, torch.float16: 0x3C00, torch.bfloat16: 0x3F80}
"""The bits of the number 1."""
_ACTIVATES = frozenset(("hardshrink", "relu", "relu6", "rrelu", "softshrink", "threshold"))
"""By their names without underscores, which forms that write in place have, and PyTorch's inner ones."""
_LEAST_ZERO = 0.98
"""Of the numbers. A sparse product takes some twenty times as long for each number that it does multiply."""
_LEAST_ZERO_OF_SPARSE = 0.95
"""Above that, twenty times as long for each number is more than a dense product takes."""
_LEAST_NUMBERS = 1 << 16
"""A factor with fewer is multiplied in microseconds."""
_MAKES_DENSE = "to_dense"
_DIMS = 3
"""Of a recurrent layer's input: time, batch, features."""
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
        """``given`` are the tensors of the call with this number. It ``is_whole`` if all earlier calls were seen."""
        is_recurrent = name in _RECURRENT
        if not (is_recurrent or name in _PRODUCTS) or len(given) < 2:
            return
        factors = given[:1] if is_recurrent or name == "linear" else given[:2]
        for place, (memory, factor) in enumerate(factors):
            was_sparse = memory in self._was_sparse
            is_known = memory not in self._activated and (is_whole or memory in self._made)
            rows = self._rows_of(factor, is_recurrent) if is_known else None
            if rows is None:
                continue
            used = (rows & rows.dtype.type(np.iinfo(rows.dtype).max >> 1)) != 0  # the sign of a zero does not count
            zero, numbers = float(1 - used.mean()), used.sum(axis=1)
            is_single = bool((numbers <= 1).all()) and not was_sparse
            picks = place == 0 and is_single and bool((numbers == 1).all() and (rows[used] == _ONE[factor.dtype]).all())
            least = _LEAST_ZERO_OF_SPARSE if was_sparse else _LEAST_ZERO
            if picks or not (is_single or is_recurrent or zero < least):
                self.found.append(SparseFactor(call, tuple(factor.shape), zero, was_sparse, picks))
                return

    def _rows_of(self, factor: Tensor, is_recurrent: bool) -> NDArray[Any] | None:
        """The bits of some rows; None for what is not looked at."""
        dims, width = TensorBase.dim(factor), factor.shape[-1] if factor.shape else 0
        is_dense = dims == 2 or (is_recurrent and dims == _DIMS and TensorBase.is_contiguous(factor))
        if not is_dense or factor.dtype not in _ONE or factor.device.type != "cpu":
            return None
        if factor.requires_grad or TensorBase.numel(factor) < _LEAST_NUMBERS:
            return None
        bits = read_bits(factor)
        if bits is None:
            return None
        bits = bits.reshape(-1, width)
        rows = bits[_places(len(bits))]
        if self._read + rows.size > _MOST_READ:
            return None
        self._read += rows.size
        found: NDArray[Any] = rows
        return found


def _places(count: int) -> NDArray[np.int64]:
    """Rows to read, one at random of each stretch: equal distances would meet the same kind of a regular pattern."""
    bounds = np.linspace(0, count, min(_ROWS, count) + 1).astype(np.int64)
    return np.random.default_rng(0).integers(bounds[:-1], bounds[1:])  # the program's generators stay as they are
