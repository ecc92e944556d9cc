"""How long an operator takes at least on a device: the roofline model.

    time = max(operations / peak rate, bytes / memory bandwidth)

S. Williams, A. Waterman, D. Patterson, Roofline: An Insightful Visual Performance Model for Multicore Architectures,
Communications of the ACM 52(4), 2009. Both terms assume perfect overlap and that every operand is moved once, so a real
operator takes a multiple of it. The model is only used for ratios, in which that multiple cancels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np
from msgspec import Struct

from profkit.derive.families import ELEMENTWISE, base_name
from profkit.derive.operators.operators import MOST_ELEMENTS, TEXTS, parse_dims, parse_types
from profkit.run.directory import Rates

ITEM_BYTES: Mapping[str, int] = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_MATMULS = frozenset(("matmul", "mm", "bmm", "linear", "addmm", "baddbmm", "inner"))
_WITH_SUMMAND = ("addmm", "baddbmm")
"""Their first input is added to the product; the factors follow."""
_CONVOLUTIONS = frozenset(("conv1d", "conv2d", "conv3d", "convolution", "_convolution"))
_CONVOLUTION_BACKWARD = "convolution_backward"
_ATTENTION = frozenset(("scaled_dot_product_attention",))
_ATTENTION_BACKWARD = re.compile(r"_scaled_dot_product_\w+_backward")
_ATTENTION_TIMES_FORWARD = 2.5
"""The backward pass of attention has five products instead of two (Dao, FlashAttention-2, 2023, section 2.3)."""
_OUTPUT_MASK = 10
"""The input of ``convolution_backward`` that says which gradients are wanted (``native_functions.yaml``)."""


class Work(Struct, frozen=True):
    """Floating-point operations, and elements moved: each input read once, the result written once. With ``is_product``
    the arithmetic is that of matrix products; otherwise it is one operation per element, which is not the limit on any
    known device."""

    operations: float
    elements: float
    is_product: bool

    def least_ns(self, rates: Rates, kind: str, rate: str | None = None) -> float | None:
        """The roofline in nanoseconds for elements of type ``kind``; ``rate`` names another arithmetic rate than the
        type's own, such as ``tf32``. None if that rate is unknown."""
        moving = self.elements * ITEM_BYTES[kind] / rates.bandwidth
        if not self.is_product:
            return moving * 1e9
        peak = rates.products.get(rate or kind)
        return None if not peak else max(self.operations / peak, moving) * 1e9


def is_convolution(name: str) -> bool:
    return base_name(name) in _CONVOLUTIONS


def settings_that_keep_size(dims: str) -> str:
    """The inputs of a convolution that are no tensors, as the profiler writes them, if it moves by one element at a
    time and its result is as large as its image. Most are such; PyTorch before 2.1 records none of these inputs."""
    shapes = parse_dims(dims)
    kernel = list(shapes[1][2:]) if len(shapes) > 1 else []
    ones = str([1] * len(kernel))
    return msgspec.json.encode(["", "", "", ones, str([size // 2 for size in kernel]), ones, "1"]).decode()


@lru_cache(TEXTS)
def work_of(name: str, dims: str, concrete: str = "") -> Work | None:
    """The work of one call of an operator with inputs of these shapes; None if there is no model for it.

    ``dims`` and ``concrete`` are the texts that the profiler wrote: shapes, and values of inputs that are not tensors.
    """
    plain = base_name(name)
    shapes = [shape for shape in parse_dims(dims) if shape]
    if not shapes or any(math.prod(shape) > MOST_ELEMENTS or min(shape) < 0 for shape in shapes):
        return None
    if plain in _MATMULS:
        return _matmul(plain, shapes)
    if plain in _CONVOLUTIONS:
        return _convolution(plain, shapes, parse_types(concrete))
    if plain in _ATTENTION:
        return _attention(shapes)
    return _backward(plain, shapes, parse_types(concrete)) or (_elementwise(shapes) if plain in ELEMENTWISE else None)


def _backward(name: str, shapes: Sequence[Sequence[int]], values: Sequence[str]) -> Work | None:
    """A backward pass gets the gradient of the result, and then what the forward pass got."""
    if name == _CONVOLUTION_BACKWARD:
        return _times(_convolution(name, shapes[1:], values[1:]), sum(wanted_gradients(values)))
    if _ATTENTION_BACKWARD.fullmatch(name):
        return _times(_attention(shapes[1:]), _ATTENTION_TIMES_FORWARD)
    return None


def wanted_gradients(values: Sequence[str]) -> tuple[bool, bool]:
    """Whether the backward pass of a convolution makes the gradients of image and weight, each with the arithmetic of
    the forward pass. Both if that was not recorded."""
    mask = values[_OUTPUT_MASK].lower().strip("[]").split(",") if len(values) > _OUTPUT_MASK else []
    of_image, of_weight = [*(wanted.strip() == "true" for wanted in mask[:2]), False, False][:2]
    return (of_image, of_weight) if of_image or of_weight else (True, True)


def convolved(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """The sizes of a convolution's result, as in PyTorch's documentation of ``Conv2d``."""
    settings = zip(sizes, padding, dilation, kernel, stride, strict=True)
    return [(size + 2 * pad - gap * (length - 1) - 1) // step + 1 for size, pad, gap, length, step in settings]


def _times(forward: Work | None, factor: float) -> Work | None:
    return None if forward is None else Work(factor * forward.operations, factor * forward.elements, True)


def _matmul(name: str, shapes: Sequence[Sequence[int]]) -> Work | None:
    product = _sizes_of(name, shapes)
    if product is None:
        return None
    read = shapes[: 3 if name in _WITH_SUMMAND or name == "linear" else 2]  # `out` may follow
    moved = sum(math.prod(shape) for shape in read) + product.batch * product.rows * product.columns
    return Work(product.operations, float(moved), True)


class Product(Struct, frozen=True):
    """The sizes of a product of matrices of ``rows`` x ``inner`` and ``inner`` x ``columns``, ``batch`` times."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def operations(self) -> float:
        """2 m n k for each product of an m x k and a k x n matrix (Golub and Van Loan, Matrix Computations, 1.1)."""
        return 2.0 * self.batch * self.rows * self.inner * self.columns


@lru_cache(TEXTS)
def product_of(name: str, dims: str) -> Product | None:
    """The sizes of the matrices that an operator multiplies; None if it is no product, or they are not known."""
    plain = base_name(name)
    if plain not in _MATMULS:
        return None
    found = _sizes_of(plain, [shape for shape in parse_dims(dims) if shape])
    return found if found is not None and min(found.batch, found.rows, found.inner, found.columns) >= 1 else None


def _sizes_of(name: str, shapes: Sequence[Sequence[int]]) -> Product | None:
    """A size may be 0."""
    factors = (shapes[1:3] if len(shapes) > 2 else shapes) if name in _WITH_SUMMAND else shapes[:2]
    if len(factors) != 2 or (name == "linear" and len(factors[1]) != 2):
        return None
    left, right = factors
    if name in ("linear", "inner"):
        right = [*right[:-2], right[-1], right[-2] if len(right) > 1 else 1]
    rows, inner = (left[-2] if len(left) > 1 else 1), left[-1]
    columns = right[-1] if len(right) > 1 else 1
    if inner != right[-2 if len(right) > 1 else -1]:
        return None
    try:
        batch = math.prod(np.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2])))
    except ValueError:
        return None
    return Product(batch, rows, inner, columns)


def _convolution(name: str, shapes: Sequence[Sequence[int]], values: Sequence[str]) -> Work | None:
    """2 operations for each element of the result and each weight that it takes."""
    image, weight = shapes[0], shapes[1] if len(shapes) > 1 else []
    spatial = len(weight) - 2
    settings = [_numbers(value, spatial) for value in values[3:6]]
    transposed = name not in ("conv1d", "conv2d", "conv3d") and "true" in [value.lower() for value in values[6:7]]
    if spatial < 1 or len(image) != len(weight) or len(settings) != 3 or transposed:
        return None
    stride, padding, dilation = settings
    if not (stride and padding and dilation and min(stride) > 0):
        return None
    result = convolved(image[2:], weight[2:], stride, padding, dilation)
    if min(result) < 1:
        return None
    produced = image[0] * weight[0] * math.prod(result)
    moved = sum(math.prod(shape) for shape in shapes) + produced
    return Work(2.0 * produced * math.prod(weight[1:]), float(moved), True)


def _attention(shapes: Sequence[Sequence[int]]) -> Work | None:
    """Two products: queries by keys and weights by values. The scores stay in the cache (Dao et al., FlashAttention,
    2022, theorem 1), so only the inputs and the result are moved."""
    if len(shapes) < 3 or min(map(len, shapes[:3])) < 2:
        return None
    query, key, value = shapes[:3]
    batch, length = math.prod(query[:-2]), query[-2]
    produced = batch * length * value[-1]
    operations = 2.0 * batch * length * key[-2] * (query[-1] + value[-1])
    return Work(operations, float(sum(math.prod(shape) for shape in shapes[:3]) + produced), True)


def _elementwise(shapes: Sequence[Sequence[int]]) -> Work | None:
    try:
        result = math.prod(np.broadcast_shapes(*map(tuple, shapes)))
    except ValueError:
        return None
    return Work(float(result), float(sum(math.prod(shape) for shape in shapes) + result), False)


def _numbers(text: str, count: int) -> list[int] | None:
    """``'[2, 2]'`` → two numbers, a single one twice; None for anything else, such as ``'same'``."""
    try:
        found = msgspec.json.decode(text, type=list[int])
    except msgspec.DecodeError:
        return None
    return found * count if len(found) == 1 else (found if len(found) == count else None)
