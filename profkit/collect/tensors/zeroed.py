"""Which results are multiplied by zeros or ignored by a loss, and which calls made them for nothing else.

A product of two tensors is looked at when the program asks for it. Its smaller factor is a mask or weights; if most of
them are exactly 0, and whole rows of the other factor meet them, the calls that made only these rows could leave them
out. Values are read from memory on the host, so that no operator runs; a factor on a device is not looked at. Which
calls take a result is known at the end of the step. A call joins the chain if nothing outside of it takes what it
makes, and if it works on each row by itself.

A loss over classes ignores the rows whose target is its `ignore_index`: those count as rows that meet a zero. Their
chain ends where branches join: before a residual connection other positions need the rows too, as attention does.

Not kept: factors whose zeros all stand at one end, as padding does, and zeros that lie here and there within rows, as
dropout and activations leave them. Ignored targets at the beginning of each row are kept: they are a question that is
given, not padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import TensorBase

from profkit.collect.tensors.in_memory import read_bits
from profkit.run.directory import ZeroedResult

_PRODUCTS = frozenset(("__mul__", "__rmul__", "mul", "multiply"))
_LEAST_ZERO = 0.6
"""Of the rows. A half is what dropping whole paths leaves at most, and gains little."""
_LEAST_DRAWN_ZERO, _LEAST_DRAWN_ROWS = 0.8, 64
"""Of weights that are drawn: nobody drops so much, but losses of few positions, drawn at random, are usual."""
_LOSSES = frozenset(("cross_entropy", "nll_loss"))
_IGNORED = -100
"""The default of `ignore_index`."""
_TURNS = frozenset(("mT", "movedim", "permute", "swapaxes", "transpose"))
"""A loss takes the classes as the second dimension."""
_DRAWING = ("bernoulli", "dropout", "rand", "uniform_")
_LEAST_ROWS = 8
"""Fewer are as fast as the call."""
_MOST_WEIGHTS = 1 << 20
"""Numbers of one factor: reading a million takes a millisecond."""
_MOST_READ = 1 << 24
"""Numbers in all."""
_ON_VECTORS = frozenset(("layer_norm", "linear", "matmul", "mm", "rms_norm"))
"""These work on the last dimension, which no row may end in."""
_ON_SAMPLES = frozenset(("conv1d", "conv2d", "conv3d", "group_norm", "instance_norm", "max_pool1d", "max_pool2d"))
"""These work on whole samples, the first dimension."""
_ON_ELEMENTS = frozenset(
    (
        "abs",
        "add",
        "clamp",
        "contiguous",
        "div",
        "double",
        "dropout",
        "elu",
        "exp",
        "expm1",
        "flatten",
        "float",
        "gelu",
        "half",
        "hardswish",
        "leaky_relu",
        "log",
        "log1p",
        "mish",
        "mul",
        "multiply",
        "neg",
        "pow",
        "relu",
        "reshape",
        "rsub",
        "sigmoid",
        "silu",
        "sin",
        "cos",
        "softplus",
        "sqrt",
        "square",
        "squeeze",
        "sub",
        "tanh",
        "to",
        "truediv",
        "type",
        "unsqueeze",
        "view",
        "view_as",
    )
)
_WITHIN_ROWS = frozenset(
    (
        "binary_cross_entropy_with_logits",
        "cross_entropy",
        "mean",
        "mse_loss",
        "nll_loss",
        "norm",
        "smooth_l1_loss",
        "sum",
    )
)
"""With a result for each row."""


class _Made(NamedTuple):
    """A call: its function's name, the shapes of its tensors and of its results, and which call made each of the former
    (None if that is not known)."""

    name: str
    given: list[tuple[int, ...]]
    results: list[tuple[int, ...]]
    parents: list[int | None]


class _Product(NamedTuple):
    """``rows`` of the factor made by the call ``maker``, of which the share ``zero`` is multiplied by zeros, or
    ``ignored``. ``turned`` is the call that moves its classes, if one does."""

    call: int
    maker: int
    rows: int
    zero: float
    ignored: bool = False
    turned: int | None = None


class ZeroedResults:
    """`note` is told each call before it runs, `note_results` after it; `conclude` at the end of the step."""

    def __init__(self) -> None:
        self._calls: dict[int, _Made] = {}
        self._products: list[_Product] = []
        self._read = 0

    def note(
        self,
        call: int,
        name: str,
        given: Sequence[Tensor],
        maker_of: Callable[[Tensor], int | None],
        named: Mapping[str, Any],
    ) -> None:
        """``given`` are the tensors of the call with this number, ``named`` its arguments with a name."""
        shapes = [tuple(tensor.shape) for tensor in given]
        self._calls[call] = _Made(name, shapes, [], [maker_of(tensor) for tensor in given])
        if name in _PRODUCTS and len(given) == 2:
            for weights, scaled in (given, (given[1], given[0])):
                maker = maker_of(scaled)
                measured = self._measure(weights, scaled) if maker is not None else None
                if maker is None or measured is None:
                    continue
                if self._is_worth(maker_of(weights), *measured):
                    self._products.append(_Product(call, maker, *measured))
        elif name in _LOSSES and len(given) > 1:
            maker, ignored = maker_of(given[0]), named.get("ignore_index", _IGNORED)
            measured = self._measure_targets(given[0], given[1], ignored) if type(ignored) is int else None
            if maker is not None and measured is not None:
                before = self._before_turn(maker, given[0])
                turned = (maker, None) if before is None else (before, maker)
                self._products.append(_Product(call, turned[0], *measured, ignored=True, turned=turned[1]))

    def note_results(self, call: int, results: Iterable[Tensor]) -> None:
        """What the call made."""
        if call in self._calls:
            self._calls[call].results.extend(tuple(tensor.shape) for tensor in results)

    def _measure(self, weights: Tensor, scaled: Tensor) -> tuple[int, float] | None:
        count, size = TensorBase.numel(weights), TensorBase.numel(scaled)
        is_small = _LEAST_ROWS <= count <= _MOST_WEIGHTS and self._read + count <= _MOST_READ
        if weights.device.type != "cpu" or not is_small or count > size or weights.is_complex():
            return None
        self._read += count
        bits = read_bits(weights)
        return None if bits is None else measure_zeros(_is_zero(bits, weights), tuple(scaled.shape))

    def _measure_targets(self, scores: Tensor, targets: Tensor, ignored: int) -> tuple[int, float] | None:
        count, of_classes = TensorBase.numel(targets), scores.dim() > 1 and scores.dim() == targets.dim() + 1
        is_small = _LEAST_DRAWN_ROWS <= count <= _MOST_WEIGHTS and self._read + count <= _MOST_READ
        if not of_classes or targets.device.type != "cpu" or targets.dtype != torch.long or not is_small:
            return None
        self._read += count
        bits = read_bits(targets)
        if bits is None:
            return None
        is_ignored = bits.view(np.int64) == ignored
        share = float(is_ignored.mean())
        return (count, share) if _LEAST_ZERO <= share < 1 and not _is_padding(is_ignored) else None

    def _before_turn(self, maker: int, scores: Tensor) -> int | None:
        """The call before this one, if all it does is to make the classes the second dimension."""
        call = self._calls.get(maker)
        if scores.dim() < 3 or call is None or call.name not in _TURNS or not call.given:
            return None
        return call.parents[0] if call.given[0][-1] == scores.shape[1] else None

    def _is_worth(self, maker: int | None, rows: int, zero: float) -> bool:
        """Weights that are drawn anew in the step may drop whole paths, and most of few rows by chance."""
        is_drawn, waiting, seen = False, [maker], set[int]()
        while waiting and not is_drawn:
            number = waiting.pop()
            if number is not None and number not in seen and number in self._calls:
                seen.add(number)
                is_drawn = any(word in self._calls[number].name for word in _DRAWING)
                waiting.extend(self._calls[number].parents)
        return not is_drawn or (rows >= _LEAST_DRAWN_ROWS and zero >= _LEAST_DRAWN_ZERO)

    def conclude(self, users_of: Callable[[int], Iterable[int | None]]) -> tuple[ZeroedResult, ...]:
        """``users_of`` tells which calls took the results of one; None stands for a call that is not known."""
        found = []
        for product in self._products:
            makers = self._chain_of(product, users_of)
            if makers:
                found.append(ZeroedResult(product.call, tuple(makers), product.rows, product.zero, product.ignored))
        return tuple(found)

    def _chain_of(self, product: _Product, users_of: Callable[[int], Iterable[int | None]]) -> list[int]:
        """The calls that work on these rows alone. A call is younger than those that made what it takes."""
        rows_of, waiting, chain = {product.maker: product.rows}, {product.maker}, {product.call}
        if product.turned is not None and chain.issuperset(users_of(product.turned)):
            chain.add(product.turned)
        while waiting:
            number = max(waiting)
            waiting.remove(number)
            call, rows = self._calls.get(number), rows_of[number]
            if call is None or not chain.issuperset(users_of(number)) or not _is_by_rows(call, rows):
                continue
            parents = _parents_with_rows(call, rows) - chain
            if product.ignored and len(parents) > 1:
                continue
            chain.add(number)
            of_parents = _rows_of_parents(call, rows)
            for parent in parents:
                rows_of[parent] = of_parents
                waiting.add(parent)
        if product.maker not in chain:
            return []
        return sorted(chain if product.ignored else chain - {product.call})


def _is_zero(bits: NDArray[Any], weights: Tensor) -> NDArray[np.bool_]:
    """Of floating-point numbers the sign does not count."""
    is_signed = weights.dtype.is_floating_point
    kept = np.iinfo(bits.dtype).max >> 1 if is_signed else np.iinfo(bits.dtype).max
    zero: NDArray[np.bool_] = (bits & bits.dtype.type(kept)) == 0
    return zero


def measure_zeros(zero: NDArray[np.bool_], shape: tuple[int, ...]) -> tuple[int, float] | None:
    """The number of rows of a tensor of this shape that each meet one weight, or equal ones, and the share of them that
    meets zeros. None if too few do, or if the zeros stand at one end."""
    if zero.ndim > len(shape):
        return None
    zero = zero.reshape((1,) * (len(shape) - zero.ndim) + zero.shape)
    if any(mine not in (1, whole) for mine, whole in zip(zero.shape, shape, strict=True)):
        return None
    while zero.ndim and (zero == zero[..., :1]).all():
        zero = zero[..., 0]
    rows, share = math.prod(shape[: zero.ndim]), float(zero.mean())
    if not _LEAST_ZERO <= share < 1 or rows < _LEAST_ROWS or _is_at_one_end(zero):
        return None
    return rows, share


def _is_at_one_end(zero: NDArray[np.bool_]) -> bool:
    """Along some dimension, as padding is."""
    for axis in range(zero.ndim):
        steps = np.diff(zero.astype(np.int8), axis=axis)
        if steps.any() and ((steps >= 0).all() or (steps <= 0).all()):
            return True
    return False


def _is_padding(ignored: NDArray[np.bool_]) -> bool:
    """Whether the ignored targets of each row follow the others."""
    steps = np.diff(ignored.astype(np.int8), axis=-1)
    return bool((steps >= 0).all() and steps.any())


def _is_by_rows(call: _Made, rows: int) -> bool:
    """Whether it makes each of so many rows of one of another tensor."""
    name = call.name.strip("_")
    if name == "stack":
        return len(set(call.given)) == 1 and _begins_with(call.given[0], _rows_of_parents(call, rows), inner=False)
    if name in _ON_SAMPLES:
        return bool(call.given) and call.given[0][:1] == (rows,)
    if name not in _ON_VECTORS | _ON_ELEMENTS | _WITHIN_ROWS or not call.results:
        return False
    if name in ("matmul", "mm") and (len(call.given) != 2 or len(call.given[1]) != 2):
        return False
    if name in _WITHIN_ROWS and call.given and len(call.given[0]) > 1 and call.given[0][0] == call.given[0][1]:
        return False  # which of the two dimensions is left, shapes do not tell
    inner = name in _ON_VECTORS
    taken = call.given[:1] if inner or name in _WITHIN_ROWS else call.given
    return any(_begins_with(shape, rows, inner) for shape in taken) and all(
        _begins_with(shape, rows, inner) for shape in call.results
    )


def _parents_with_rows(call: _Made, rows: int) -> set[int]:
    """The calls that made what is taken row by row: of a product that is the left factor alone, and in arithmetic what
    has the same first dimensions as the result."""
    name, taken = call.name.strip("_"), list(zip(call.given, call.parents, strict=True))
    if name in _ON_VECTORS | _ON_SAMPLES | _WITHIN_ROWS:
        taken = taken[:1]
    elif name != "stack" and len(taken) > 1:
        whole = call.results[0]
        end = next((end for end in range(1, len(whole) + 1) if math.prod(whole[:end]) == rows), 0)
        taken = [(shape, parent) for shape, parent in taken if shape[:end] == whole[:end]]
    return {parent for _, parent in taken if parent is not None}


def _rows_of_parents(call: _Made, rows: int) -> int:
    """How many of the rows each tensor that a call takes has: a stack of them may add a dimension of rows."""
    if call.name != "stack" or not call.given or _begins_with(call.given[0], rows, inner=False):
        return rows
    return rows // len(call.given) if rows % len(call.given) == 0 else 0


def _begins_with(shape: tuple[int, ...], rows: int, inner: bool) -> bool:
    """Whether the first dimensions, if ``inner`` not all, hold so many rows."""
    return any(math.prod(shape[:end]) == rows for end in range(1, len(shape) + (not inner)))
