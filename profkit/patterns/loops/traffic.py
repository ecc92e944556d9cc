"""How many elements an elementwise operator works on, and the bytes that it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, VIEW, base_name, operators_of
from profkit.derive.operators.operators import LARGEST_TENSOR, TEXTS, item_bytes, parse_dims, parse_types
from profkit.trace.events import Bools, Category, Int64s, Rows, Trace
from profkit.trace.statistics import distinct_rows

_PREDICATES = frozenset(
    (
        "eq",
        "ge",
        "gt",
        "isfinite",
        "isinf",
        "isnan",
        "le",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "lt",
        "ne",
    )
)
"""Operators whose result is a tensor of bool, with one byte per element."""
_CONDITIONAL = frozenset(("dropout", "feature_dropout", "to", "type_as"))
_COPYING = frozenset(("_to_copy", "clone", "copy"))


class Traffic(Struct, frozen=True):
    """Columns over the rows asked for. ``elements`` is the size of the result, by broadcasting the inputs. The bytes
    count every input tensor as often as it is named, and the result in the widest type of the inputs."""

    elements: Int64s
    read_bytes: Int64s
    written_bytes: Int64s


def measure_traffic(trace: Trace, rows: Rows) -> Traffic:
    """The traffic of these operators as if each were elementwise, computed once per distinct name and shapes."""
    events = trace.events
    first, inverse = distinct_rows(events.name_code[rows], events.dims_code[rows], events.types_code[rows])
    columns = np.zeros((len(first), 3), dtype=np.int64)
    for i, row in enumerate(rows[first].tolist()):
        dims, types = trace.text_of(events.dims_code[row]), trace.text_of(events.types_code[row])
        columns[i] = _traffic_of(base_name(trace.name_of(row)), dims, types)
    return Traffic(*columns[inverse].T)


@lru_cache(TEXTS)
def _traffic_of(name: str, dims: str, types: str) -> tuple[int, int, int]:
    shapes, kinds = parse_dims(dims), parse_types(types)
    if len(kinds) != len(shapes):
        kinds = ("float",) * len(shapes)
    tensors = [(shape, item_bytes(kind)) for shape, kind in zip(shapes, kinds, strict=True) if shape]
    elements = _broadcast([shape for shape, _ in tensors])
    widest = max((size for _, size in tensors), default=0)
    read = sum(math.prod(shape) * size for shape, size in tensors)
    return elements, read, elements * (1 if name in _PREDICATES else widest)


def _broadcast(shapes: list[Sequence[int]]) -> int:
    """The elements of the shapes broadcast together; 0 if there are none or they do not fit."""
    if shapes and all(shape == shapes[0] for shape in shapes[1:]):
        return math.prod(shapes[0])
    try:
        elements = math.prod(np.broadcast_shapes(*map(tuple, shapes))) if shapes else 0
    except ValueError:
        return 0
    return elements if elements <= LARGEST_TENSOR else 0


def tell_elementwise(facts: Facts, rows: Rows) -> tuple[Bools, Bools]:
    """Which of the operators work element by element, and which of the others move no data at all.

    ``to`` and ``dropout`` may do nothing and ``reshape`` may copy: what runs inside shows which. A copy between devices
    is neither.
    """
    trace, tree, launches = facts.trace, facts.tree, facts.launches
    inner = facts.calling[(trace.events.category == Category.OPERATOR) & (facts.calling >= 0)]
    inside = trace.mask_of(inner)[rows]
    copies = tree.holding(operators_of(trace, _COPYING))[rows]
    idle = operators_of(trace, _CONDITIONAL)[rows] & ~inside
    moving = launches.operator[trace.events.category[launches.work] == Category.MEMCPY]
    transfers = tree.holding(trace.mask_of(moving[moving >= 0]))[rows]
    elementwise = operators_of(trace, ELEMENTWISE)[rows] & ~idle & ~transfers
    return elementwise, idle | (operators_of(trace, VIEW)[rows] & ~copies)
