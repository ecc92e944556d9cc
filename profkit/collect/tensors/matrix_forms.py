"""Which matrices that products and decompositions take have a simple form: diagonal, one number beside the diagonal,
rows that add up all before them, or a batch of one and the same matrix. Of convolutions that take each channel by
itself, whether all kernels are a column times a row.

Numbers are read where they lie when the program makes the call, so that no operator runs: of single matrices some rows,
of a batch some places of each matrix. Those on a device are not looked at. Each call that was looked at is kept, also
if it has no such form: the first round of a recursion often has one, such as the identity, and later ones have not.
Parameters have none, as they may begin as the identity and are trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import TensorBase

from profkit.collect.tensors.in_memory import read_bits
from profkit.run.directory import Form, MatrixForm

_PRODUCTS = frozenset(("__matmul__", "bmm", "matmul", "mm"))
_DECOMPOSING = frozenset(
    (
        *("cholesky", "cholesky_inverse", "det", "inverse", "linalg_cholesky", "linalg_cholesky_ex", "linalg_det"),
        *("linalg_eigh", "linalg_eigvalsh", "linalg_inv", "linalg_inv_ex", "linalg_matrix_exp", "linalg_slogdet"),
        *("linalg_solve", "linalg_solve_ex", "logdet", "matrix_exp", "slogdet"),
    )
)
"""What takes the third power of a matrix's size. ``linalg_solve`` has it first, too."""
_CONVOLUTION = "conv2d"
_OF_KERNEL = 4
"""Dimensions of a kernel: results, inputs for each, height and width."""
_LEAST_TAPS = 5
"""Along each side: two passes with shorter kernels take as long."""
_ROUNDING = 1e-4
"""Of the largest weight: normalising a window in float32 leaves a few times 1e-7."""
_FLOATS = {torch.float32: np.float32, torch.float64: np.float64}
_LEAST_SIZE = 16
"""Of a matrix in a product: smaller ones take as long as what would replace them."""
_LEAST_BATCH = 4
_DIMS = 2
_BY_PRODUCTS = frozenset((Form.DIAGONAL, Form.CENTRING, Form.ADDING_UP))
_BY_DECOMPOSING = frozenset((Form.DIAGONAL,))
_ROWS, _PLACES = 64, 32
"""Rows of a matrix, and places of each matrix of a batch, that are read."""
_MOST_READ, _MOST_CALLS = 1 << 20, 512
"""Numbers and calls in a step: a million numbers take a millisecond or two, 512 calls 25 to 50 ms of the 600 that the
watch of calls may take."""


class FormWatch:
    """`note` is told each call before it runs; ``found`` are the calls that were looked at."""

    def __init__(self) -> None:
        self.found: list[MatrixForm] = []
        self._read = 0

    def note(self, call: int, name: str, given: Sequence[Tensor]) -> None:
        if name == _CONVOLUTION:
            self._note_kernel(call, given)
            return
        is_product = name in _PRODUCTS
        if not (is_product or name in _DECOMPOSING) or len(self.found) >= _MOST_CALLS:
            return
        factors = list(given[: 1 + is_product])
        if len(factors) != 1 + is_product or any(map(_is_passed_by, factors)):
            return
        forms = [self._form_of(one) for one in factors]
        if Form.UNREAD not in forms:
            self.found.append(_describe(call, factors, forms, self._are_equal(factors)))

    def _note_kernel(self, call: int, given: Sequence[Tensor]) -> None:
        kernel = given[1] if len(given) > 1 and len(self.found) < _MOST_CALLS else None
        if kernel is None or _is_passed_by(kernel) or kernel.dim() != _OF_KERNEL or kernel.requires_grad:
            return
        count, size = kernel.shape[0], TensorBase.numel(kernel)
        is_small = kernel.shape[1] == 1 and min(kernel.shape[2:]) >= _LEAST_TAPS and self._read + size <= _MOST_READ
        numbers = self._numbers(kernel) if is_small else None
        if numbers is not None:
            self._read += size
            form = Form.SEPARABLE if are_separable(numbers.reshape(count, *kernel.shape[2:])) else Form.NONE
            self.found.append(MatrixForm(call, form, tuple(kernel.shape), TensorBase.numel(given[0])))

    def _numbers(self, matrix: Tensor) -> NDArray[Any] | None:
        bits = read_bits(matrix)
        return None if bits is None else bits.view(_FLOATS[matrix.dtype])

    def _form_of(self, matrix: Tensor) -> Form:
        size = matrix.shape[-1]
        if matrix.shape[-2] != size:
            return Form.NONE
        numbers = self._numbers(matrix)
        if numbers is None or self._read + _ROWS * size > _MOST_READ:
            return Form.UNREAD
        count = math.prod(matrix.shape[:-1])
        places = _some(count, _ROWS)
        rows = numbers[np.unravel_index(places, matrix.shape[:-1])]
        self._read += rows.size
        return form_of_rows(rows, places % size)

    def _are_equal(self, factors: Sequence[Tensor]) -> bool:
        """Whether a batch is one matrix many times, and is multiplied, if at all, with another such or with a single
        matrix."""
        batches = [one for one in factors if TensorBase.dim(one) > _DIMS]
        return bool(batches) and all(map(self._is_one_matrix, batches))

    def _is_one_matrix(self, batch: Tensor) -> bool:
        """All are the same, and not of zeros."""
        count = math.prod(batch.shape[:-2])
        numbers = self._numbers(batch) if count >= _LEAST_BATCH else None
        if numbers is None or self._read + count * _PLACES > _MOST_READ:
            return False
        inner = batch.shape[-2:]
        where: tuple[Any, ...] = (..., *np.unravel_index(_some(math.prod(inner), _PLACES), inner))
        some = numbers[where].reshape(count, -1)
        self._read += some.size
        return bool((some == some[0]).all() and some.any())


def _describe(call: int, factors: list[Tensor], forms: list[Form], are_equal: bool) -> MatrixForm:
    """One factor of a simple form is enough."""
    is_product = len(factors) > 1
    useful = _BY_PRODUCTS if is_product else _BY_DECOMPOSING
    least = _LEAST_SIZE if is_product else 0
    simple = [
        n for n, one in enumerate(factors) if forms[n] in useful and one.shape[-1] >= least and _may(forms[n], one)
    ]
    place = simple[0] if simple and not are_equal else max(range(len(factors)), key=lambda n: factors[n].dim())
    form = Form.EQUAL if are_equal else forms[place] if simple else Form.NONE
    others = TensorBase.numel(factors[1 - place]) if is_product else math.prod(factors[0].shape[:-1])
    return MatrixForm(call, form, tuple(factors[place].shape), others)


def form_of_rows(rows: NDArray[Any], own: NDArray[np.int64]) -> Form:
    """``own`` is the column of each row's number on the diagonal."""
    columns = np.arange(rows.shape[1])
    beside = columns != own[:, None]
    others = rows[beside]
    if not rows.any():
        return Form.NONE
    if not others.any():
        return Form.DIAGONAL
    diagonal = rows[~beside]
    if (others == others[0]).all() and (diagonal == diagonal[0]).all():
        return Form.CENTRING
    for before in (columns <= own[:, None], columns >= own[:, None]):
        if not rows[~before].any() and (np.where(before, rows, diagonal[:, None]) == diagonal[:, None]).all():
            return Form.ADDING_UP
    return Form.NONE


def are_separable(kernels: NDArray[Any]) -> bool:
    """Whether each of these matrices, none of them zero, is a column times a row. The largest number of each lies in
    both."""
    count, high, wide = kernels.shape
    each, largest = np.arange(count), np.abs(kernels).reshape(count, high * wide).argmax(1)
    at_row, at_column = np.unravel_index(largest, (high, wide))
    peak = kernels[each, at_row, at_column].astype(np.float64)
    if not np.isfinite(kernels).all() or not peak.all():
        return False
    columns, rows = kernels[each, :, at_column], kernels[each, at_row, :]
    made = columns[:, :, None] * rows[:, None, :] / peak[:, None, None]
    return bool((np.abs(made - kernels) <= _ROUNDING * np.abs(peak)[:, None, None]).all())


def _may(form: Form, matrix: Tensor) -> bool:
    """Only a diagonal that the step has made may have gradients: those beside it are then of no use."""
    return not matrix.requires_grad or (form is Form.DIAGONAL and not matrix.is_leaf)


def _is_passed_by(matrix: Tensor) -> bool:
    is_read = matrix.dtype in _FLOATS and matrix.device.type == "cpu" and TensorBase.dim(matrix) >= _DIMS
    return not is_read or TensorBase.numel(matrix) == 0


def _some(count: int, most: int) -> NDArray[np.int64]:
    """Places, one at random of each stretch, and the last: the program's generators stay as they are."""
    bounds = np.linspace(0, count, min(most, count) + 1).astype(np.int64)
    return np.append(np.random.default_rng(0).integers(bounds[:-1], bounds[1:]), count - 1)
