"""Operators that are bound by memory on any known device: their bytes.

Each input is read once and each result written once. What only a few rows of a table are taken from is not read whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from profkit.derive.device.kernel_families import Family
from profkit.derive.families import ELEMENTWISE, writes_in_place
from profkit.derive.operators.operators import LARGEST_TENSOR
from profkit.savings.roofline.calls import BYTES_OF, FLOATS, Call
from profkit.savings.roofline.demand import Demand

_COMPARISON_NAMES = """eq ne lt le gt ge greater greater_equal less less_equal not_equal logical_and logical_or
    logical_not logical_xor isnan isinf isfinite isneginf isposinf"""
_COMPARISONS = frozenset(_COMPARISON_NAMES.split())
_NO_KERNEL = frozenset(("to", "type_as", "_to_copy", "dropout", "feature_dropout"))
"""They call other operators, which are counted."""
_BACKWARD = """threshold gelu silu sigmoid tanh leaky_relu elu hardswish hardsigmoid hardtanh softplus mish
    native_dropout mse_loss smooth_l1_loss huber_loss binary_cross_entropy log_sigmoid logit"""
"""Their gradients are elementwise as well."""


def _moved(kind: Family, call: Call, read: float, written: float) -> Demand:
    return Demand(kind, 0.0, read, written, call.float_type)


def _widest(call: Call) -> str:
    """The type of a result: of its inputs with dimensions, floating point before whole numbers, then the widest."""
    types = [call.type_of(at) for at in call.tensors] or [call.float_type]
    return max(types, key=lambda one: (one in FLOATS, BYTES_OF.get(one, 0)))


def _elementwise(call: Call) -> Demand | None:
    tensors = call.tensors
    try:
        elements = math.prod(np.broadcast_shapes(*(call.shape(at) for at in tensors)))
    except ValueError:
        return None
    if not tensors:
        return None
    plain = call.name.removeprefix("aten::")
    is_in_place = writes_in_place(plain)
    made = call.type_of(0) if is_in_place else ("bool" if plain in _COMPARISONS else _widest(call))
    written = elements * BYTES_OF.get(made or "float32", 4) + (elements if plain == "native_dropout" else 0)
    return _moved(Family.ELEMENTWISE, call, call.all_bytes, float(written))


def _backward(call: Call) -> Demand | None:
    return _moved(Family.ELEMENTWISE, call, call.all_bytes, float(call.elements(0) * BYTES_OF[call.float_type]))


def _normalise(call: Call) -> Demand | None:
    """Statistics are one number for many elements."""
    largest = max((call.size(at) for at in call.tensors), default=0.0)
    return _moved(Family.NORMALISATION, call, call.all_bytes, largest) if largest else None


def _softmax(call: Call) -> Demand | None:
    made = call.elements(0) * 4.0 if call.is_true(2) else call.size(0)
    return _moved(Family.SOFTMAX, call, call.size(0), made)


def _softmax_backward(call: Call) -> Demand | None:
    return _moved(Family.SOFTMAX, call, call.size(0, 1), call.size(0))


def _reduce(dimension: int, call: Call) -> Demand | None:
    """``dimension`` is the place of the argument that names what is summed over; without one it is all."""
    shape = call.shape(0)
    over = call.numbers(dimension) if call.value(dimension).strip("[]") else ()
    kept = float(call.elements(0)) if over else 1.0
    for one in set(over or ()):
        if -len(shape) <= one < len(shape):
            kept /= max(shape[one], 1)
    return _moved(Family.REDUCTION, call, call.size(0), kept * BYTES_OF.get(call.type_of(0), 4))


def _copy(call: Call) -> Demand | None:
    """``copy_(to, from)`` reads the second and writes the first."""
    return _moved(Family.LAYOUT, call, call.size(1), call.size(0)) if call.size(1) else None


def _duplicate(call: Call) -> Demand | None:
    return _moved(Family.LAYOUT, call, call.size(0), call.size(0))


def _join(call: Call) -> Demand | None:
    if not call.shapes:
        return None
    size = float(sum(math.prod(shape) for shape in call.shapes[0]) * 4)
    return _moved(Family.LAYOUT, call, size, size)


def _fill(call: Call) -> Demand | None:
    return _moved(Family.LAYOUT, call, 0.0, call.size(0))


def _rows(table: int, index: int, call: Call) -> Demand | None:
    """Whole rows of a table."""
    shape = call.shape(table)
    if len(shape) < 2:
        return None
    width = math.prod(shape[1:]) * BYTES_OF.get(call.type_of(table), 4)
    taken = float(call.elements(index) * width)
    return _moved(Family.EMBEDDING, call, taken + call.size(index), taken)


def _select(call: Call) -> Demand | None:
    """``index_select(table, dimension, index)``"""
    shape, dimension = call.shape(0), call.numbers(1)
    if not shape or not dimension or not -len(shape) <= dimension[0] < len(shape):
        return None
    each = call.size(0) / max(shape[dimension[0]], 1)
    taken = each * call.elements(2)
    return _moved(Family.INDEXING, call, taken + call.size(2), taken)


def _gather(call: Call) -> Demand | None:
    """``gather(table, dimension, index)``: one element for each index."""
    taken = float(call.elements(2) * BYTES_OF.get(call.type_of(0), 4))
    return _moved(Family.INDEXING, call, taken + call.size(2), taken)


def _scatter(index: int, source: int, call: Call) -> Demand | None:
    """``scatter_add_(to, dimension, index, from)``: each element of the source is added to one that is read first."""
    moved = call.size(source)
    return _moved(Family.INDEXING, call, 2 * moved + call.size(index), moved) if moved else None


def is_added_up(call: Call) -> bool:
    """``index_put_(to, indices, from, accumulate)``: whether elements for one place are added up."""
    return call.is_true(3)


def _put(call: Call) -> Demand | None:
    """Elements at places that lists of indices name. A mask leaves the number of places open."""
    moved, indices = call.size(2), call.shapes[1] if len(call.shapes) > 1 else ()
    if not call.shape(2) or not indices or call.shape(0) in indices:
        return None
    places = sum(math.prod(shape) for shape in indices) * BYTES_OF["int64"]
    read = (2 if is_added_up(call) else 1) * moved
    return _moved(Family.INDEXING, call, read + places, moved)


def _rows_backward(call: Call) -> Demand | None:
    """``embedding_dense_backward(gradient, index, rows, …)`` adds rows to a table of that many, filled with zeros by a
    call of its own."""
    shape, rows = call.shape(0), call.numbers(2)
    if not shape or not rows or not 0 < rows[0] <= LARGEST_TENSOR:
        return None
    table = float(rows[0] * shape[-1] * BYTES_OF.get(call.type_of(0), 4))
    return _moved(Family.EMBEDDING, call, call.size(0, 1), min(table, call.size(0)))


def _update(read: tuple[int, ...], written: tuple[int, ...], call: Call) -> Demand | None:
    """Lists of tensors."""
    return _moved(Family.OPTIMIZER, call, call.size(*read), call.size(*written)) if call.size(0) else None


def _foreach(call: Call) -> Demand | None:
    """``_foreach_add_`` and its like read all their lists and write as much as the first holds, which some recordings
    do not tell: a number beside it says nothing."""
    lists = tuple(at for at in range(len(call.shapes)) if call.shapes[at] and call.type_of(at))
    return _moved(Family.OPTIMIZER, call, call.size(*lists), call.size(0)) if call.size(0) else None


_ADAM = partial(_update, (0, 1, 2, 3, 4), (0, 2, 3, 4))
_REDUCTIONS = "sum mean amax amin max min argmax argmin prod std var all any logsumexp"
_NORMS = """layer_norm native_layer_norm native_layer_norm_backward group_norm native_group_norm
    native_group_norm_backward native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward
    miopen_batch_norm miopen_batch_norm_backward _native_batch_norm_legit rms_norm _fused_rms_norm
    _fused_rms_norm_backward batch_norm _batch_norm_impl_index"""
_SCATTERS = "scatter_add index_add scatter_reduce index_reduce"
_ONE_LIST = "add sub mul div addcmul addcdiv lerp sqrt pow neg reciprocal norm zero copy maximum clamp_min clamp_max"
MOVING_MODELS: Mapping[str, Callable[[Call], Demand | None]] = {
    **{
        f"aten::{name}{end}": _elementwise
        for name in ELEMENTWISE - _NO_KERNEL
        for end in ("", "_")
        if not name.endswith("__")
    },
    **{f"aten::{name}_backward": _backward for name in _BACKWARD.split()},
    **{f"aten::{name}": _normalise for name in _NORMS.split()},
    **{f"aten::{name}": _softmax for name in ("softmax", "_softmax", "log_softmax", "_log_softmax")},
    **{f"aten::{name}": _softmax_backward for name in ("_softmax_backward_data", "_log_softmax_backward_data")},
    **{f"aten::{name}": partial(_reduce, 1) for name in _REDUCTIONS.split()},
    "aten::linalg_vector_norm": partial(_reduce, 2),
    "aten::norm": partial(_reduce, 2),
    "aten::copy_": _copy,
    "aten::clone": _duplicate,
    "aten::fill_": _fill,
    "aten::zero_": _fill,
    "aten::cat": _join,
    "aten::embedding": partial(_rows, 0, 1),
    "aten::embedding_dense_backward": _rows_backward,
    "aten::index_select": _select,
    "aten::gather": _gather,
    **{f"aten::{name}{end}": partial(_scatter, 2, 3) for name in _SCATTERS.split() for end in ("", "_")},
    **{f"aten::{name}": _put for name in ("index_put", "index_put_", "_index_put_impl_")},
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_sgd_": partial(_update, (0, 1, 2), (0, 2)),
    **{f"aten::_foreach_{name}{end}": _foreach for name in _ONE_LIST.split() for end in ("", "_")},
}
