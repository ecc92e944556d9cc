"""The operators as rules see them: what the program called, with shapes, types and bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from operator import mul

import msgspec
import numpy as np
from msgspec import Struct

from profkit.derive.operators.source_lines import Lines
from profkit.derive.steps.boundaries import Steps
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import distinct, distinct_rows

_ITEM_BYTES = {
    "double": 8,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short": 2,
    "short int": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
}
MOST_ELEMENTS = 2**62
"""A file may claim any shape. This keeps sizes within 64 bits."""
LARGEST_TENSOR = 2**40
"""In elements, which are terabytes. Sums over all operators of a trace then stay within 64 bits."""
TEXTS = 1 << 15
"""How many texts' results are remembered: several derivations ask for the same."""
_shapes = msgspec.json.Decoder(list[list[int]])
"""For nearly all texts."""


class OfInputs(Struct, frozen=True):
    """A number by the shapes and types of an event's inputs, to be indexed by rows of the trace (numbers, a mask or a
    slice). ``kind`` says which of the few distinct inputs each event has; the last one is for unknown inputs."""

    kind: Int32s
    values: Int64s

    def __getitem__(self, rows: Rows | Int32s | Bools | list[int] | slice) -> Int64s:
        found: Int64s = self.values[self.kind[rows]]
        return found


class Operators(Struct, frozen=True):
    """``rows`` are the outermost operators of the main thread, which the program itself called, and backward nodes. An
    ``autograd.Function`` is the program's own code, so the operators that it calls count. ``nodes`` are the same with
    each such function as one operator, as autograd sees it. The others are known for all events: ``input_bytes`` is the
    size of all tensor inputs, 0 if shapes were not recorded, and ``elements`` the size of the largest input."""

    rows: Rows
    nodes: Rows
    input_bytes: OfInputs
    elements: OfInputs
    has_shapes: bool


def describe_operators(trace: Trace, tree: Tree, steps: Steps, lines: Lines) -> Operators:
    events = trace.events
    operators = events.category == Category.OPERATOR
    functions, on_main = _functions(trace, tree, operators), events.lane == steps.main_lane
    backward = tree.outermost(lines.backward)
    rows = nodes = np.flatnonzero((tree.outermost(operators & ~lines.backward & ~functions) | backward) & on_main)
    if functions.any():
        nodes = np.flatnonzero((tree.outermost(operators & ~lines.backward) | backward) & on_main)
    sizes, elements = _sizes(trace, events.dims_code, events.types_code)
    return Operators(rows, nodes, sizes, elements, bool((events.dims_code >= 0).any()))


def _functions(trace: Trace, tree: Tree, operators: Bools) -> Bools:
    """The forward of an ``autograd.Function``. It is named like a class, unlike an operator (``aten::add``), and has
    operators inside. That of `torch.compile` is named ``CompiledFunction``."""
    like_classes = trace.where_name(str.isidentifier)
    named = np.flatnonzero(operators & like_classes)
    if not named.size:
        return np.zeros(len(operators), dtype=bool)
    around = tree.nearest_ancestor(trace.mask_of(named), of=np.flatnonzero(operators))
    return trace.mask_of(around[around >= 0])


@lru_cache(TEXTS)
def parse_dims(text: str) -> Sequence[Sequence[int]]:
    """``'[[4, 10], [], [10]]'`` → one shape per input. An input that is no tensor has no dimensions, and lists of
    tensors are flattened.

    An impossible shape counts as none.
    """
    shapes = _read_dims(text)
    return shapes if all(map(_is_possible, shapes)) else [shape if _is_possible(shape) else [] for shape in shapes]


def _is_possible(shape: Sequence[int]) -> bool:
    return not shape or (min(shape) >= 0 and math.prod(shape) <= LARGEST_TENSOR)


def _read_dims(text: str) -> Sequence[Sequence[int]]:
    with suppress(msgspec.DecodeError, RecursionError):
        return _shapes.decode(text)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    shapes: list[list[int]] = []
    for item in value if isinstance(value, list) else []:
        if _is_shape(item):
            shapes.append(item)
        elif isinstance(item, list):
            shapes.extend(filter(_is_shape, item))
    return shapes


def _is_shape(item: object) -> bool:
    """A truth value is an integer to Python, but no size."""
    return isinstance(item, list) and all(type(size) is int for size in item)


@lru_cache(TEXTS)
def parse_types(text: str) -> Sequence[str]:
    """``'["float", "Scalar"]'`` → one type per input."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [item if isinstance(item, str) else "" for item in value] if isinstance(value, list) else []


def item_bytes(type_name: str) -> int:
    """Bytes of one element of a type as the profiler names it; 0 if it is not a tensor."""
    return _ITEM_BYTES.get(type_name, 0)


def _sizes(trace: Trace, dims_code: np.ndarray, types_code: np.ndarray) -> tuple[OfInputs, OfInputs]:
    """Input bytes and the largest input of each event, computed once per distinct pair of shapes and types."""
    rows = np.flatnonzero(dims_code >= 0)
    first, inverse = distinct_rows(dims_code[rows], types_code[rows])
    pairs = zip(dims_code[rows[first]].tolist(), types_code[rows[first]].tolist(), strict=True)
    found = [*(_size_of(trace.text_of(dims), trace.text_of(types)) for dims, types in pairs), (0, 0)]
    kind = np.full(len(dims_code), len(found) - 1, dtype=np.int32)
    kind[rows] = inverse
    sizes, elements = np.array(found, dtype=np.int64).T
    return OfInputs(kind, sizes), OfInputs(kind, elements)


def _size_of(dims: str, types: str) -> tuple[int, int]:
    counts, items = _counts(dims), _item_sizes(types)
    size = sum(map(mul, counts, items)) if len(items) == len(counts) else 4 * sum(counts)
    return min(size, MOST_ELEMENTS), max(counts, default=0)


@lru_cache(TEXTS)
def _counts(dims: str) -> list[int]:
    """The elements of each input; 0 if it is not a tensor."""
    return [math.prod(shape) if shape else 0 for shape in parse_dims(dims)]


@lru_cache(TEXTS)
def _item_sizes(types: str) -> list[int]:
    return list(map(item_bytes, parse_types(types)))


def has_type(trace: Trace, *wanted: str) -> Bools:
    """Events with at least one input of one of these types."""
    codes = trace.events.types_code
    matching = np.zeros(len(trace.texts) + 1, dtype=bool)  # the last one is for events without types
    for code in distinct(codes).tolist():
        matching[code] = any(f'"{name}"' in trace.text_of(code) for name in wanted)
    return matching[codes]
