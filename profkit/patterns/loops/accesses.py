"""How many elements or rows an operator takes out of a tensor, which reveals a loop over a tensor's elements."""

from __future__ import annotations

import math

from profkit.derive.facts import Facts
from profkit.patterns.shapes import Shapes, by_operator, first_shape
from profkit.trace.events import Int64s, Rows

TINY_ELEMENTS = 4096
"""At eight or more float32 per cycle from the first-level cache (16 KiB of at least 32), the arithmetic takes less than
the microsecond of the dispatch."""
MAX_GAP_NS = 200_000
"""Python takes microseconds between two operators of one loop or formula. A longer gap is other work, which stays."""
ITERATING = frozenset(("unbind",))
"""The operators that Python's `for` calls on a tensor."""
_FEW_INDICES = 16
"""A loop that indexes by a tensor uses a single number or a coordinate."""
BY_NUMBER = frozenset(("select", "slice", "narrow"))
_BY_TENSOR = frozenset(("index", "index_put", "index_select", "gather", "take"))
"""Element accesses if the tensor of indices holds a few; with many they are the vectorised way."""


def count_accesses(facts: Facts, rows: Rows) -> Int64s:
    """How many elements or rows each operator takes out of a tensor: one for `x[i]`, all of them for `for v in x`."""
    return by_operator(facts, rows, _accesses_of, of=int)


def _accesses_of(name: str, shapes: Shapes) -> int:
    if name in BY_NUMBER:
        return 1
    if name in ITERATING:
        return next(iter(first_shape(shapes)), 0)
    return int(name in _BY_TENSOR and all(math.prod(indices) <= _FEW_INDICES for indices in shapes[1:]))
