"""A recorded call of an operator as its arguments: shapes, element types, and values of what is no tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from profkit.derive.operators.operators import LARGEST_TENSOR, TEXTS, parse_types

BYTES_OF: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of an element."""
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8")
_NAMES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "int8",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}
_LIST = "tensorlist"
_NUMBERS = re.compile(r"-?\d+")

Shape = tuple[int, ...]


class Call(Struct, frozen=True):
    """What an operator called ``name`` got. For each input: its ``shapes`` (several for a list of tensors, one of no
    dimensions for a number), its element type, empty if it is no tensor, and the text of its value."""

    name: str
    shapes: tuple[tuple[Shape, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]

    def shape(self, at: int) -> Shape:
        """Of one tensor; without dimensions if there is none."""
        return self.shapes[at][0] if at < len(self.shapes) and self.shapes[at] else ()

    def type_of(self, at: int) -> str:
        """The element type; float32 for a list of tensors, whose types are not recorded."""
        return self.types[at] if at < len(self.types) else ""

    def elements(self, at: int) -> int:
        if at >= len(self.shapes) or not self.type_of(at):
            return 0
        return sum(math.prod(shape) for shape in self.shapes[at])

    def size(self, *at: int) -> float:
        """Bytes of these inputs, each once."""
        return float(sum(self.elements(one) * BYTES_OF.get(self.type_of(one), 0) for one in at))

    @property
    def all_bytes(self) -> float:
        return self.size(*range(len(self.shapes)))

    @property
    def tensors(self) -> tuple[int, ...]:
        """The places of the tensors of at least one dimension."""
        return tuple(at for at in range(len(self.shapes)) if self.type_of(at) and self.shape(at))

    @property
    def float_type(self) -> str:
        """The type of the first tensor of floating-point numbers; float32 if none was recorded."""
        return next((one for one in self.types if one in FLOATS), "float32")

    def value(self, at: int) -> str:
        return self.values[at] if at < len(self.values) else ""

    def is_true(self, at: int) -> bool:
        return self.value(at).lower() == "true"

    def numbers(self, at: int, count: int = 0) -> tuple[int, ...] | None:
        """The whole numbers of an argument such as ``[2, 2]`` or ``(2,2)``, a single one ``count`` times. None if they
        are not as many, as in ``'same'``."""
        found = tuple(map(int, _NUMBERS.findall(self.value(at))))
        if not count:
            return found
        return found * count if len(found) == 1 else (found if len(found) == count else None)


@lru_cache(TEXTS)
def read_call(name: str, dims: str, types: str, values: str) -> Call | None:
    """The call from the profiler's texts; None if they are damaged."""
    try:
        items = msgspec.json.decode(dims)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(items, list):
        return None
    named = parse_types(types)
    kinds = tuple(map(_type_named, named))
    lists = {at for at, one in enumerate(named) if one.lower() == _LIST}
    shapes = tuple(_shapes_of(item, at in lists) for at, item in enumerate(items))
    return Call(name, shapes, kinds, tuple(parse_types(values)))


def _type_named(text: str) -> str:
    plain = text.removeprefix("c10::").lower()
    if plain == _LIST:
        return "float32"
    if plain.startswith("float8"):
        return "float8"
    plain = _NAMES.get(plain, plain)
    return plain if plain in BYTES_OF else ""


def _shapes_of(item: object, is_list: bool) -> tuple[Shape, ...]:
    """The shapes of one input. Before PyTorch 2.4 a list of tensors was recorded as no shape at all."""
    if not isinstance(item, list) or (is_list and not item):
        return ()
    inside: Sequence[object] = item if any(isinstance(one, list) for one in item) else [item]
    return tuple(tuple(one) for one in inside if isinstance(one, list) and _is_shape(one))


def _is_shape(sizes: list[object]) -> bool:
    whole = [size for size in sizes if type(size) is int and size >= 0]
    return len(whole) == len(sizes) and math.prod(whole) <= LARGEST_TENSOR
