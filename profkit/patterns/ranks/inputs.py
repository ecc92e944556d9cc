"""How large the inputs are that each step of a rank works on.

Told by what the forward pass's matrix products, convolutions and embeddings take in besides the weights, or by what
they allocate for their results: either is in proportion to the samples, pixels or tokens. What the backward pass and
the optimizer allocate is not: gradients are as large as the weights. Steps recorded without shapes have the second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from profkit.derive.families import MATRIX, operators_of
from profkit.derive.launch.table import Inputs
from profkit.patterns.shapes import by_operator
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows

if TYPE_CHECKING:
    from profkit.derive.facts import Facts

_LOOKED_UP = frozenset({"embedding", "embedding_bag"})
_INPUT_IS_SECOND = _LOOKED_UP | {"addmm", "addmv", "addbmm", "baddbmm"}
"""Embeddings take the table first, these products what they add."""
_MOST = 2**62
"""A file may claim any shape."""


def measure_inputs(facts: Facts, chosen: Rows) -> Inputs:
    """Of the ``chosen`` steps."""
    heavy = operators_of(facts.trace, MATRIX, _LOOKED_UP) & ~facts.lines.backward
    heavy &= ~facts.tree.under(facts.optimizing)
    rows = np.flatnonzero(facts.tree.outermost(heavy))
    step = facts.step_of(rows)
    rows, step = rows[step >= 0], step[step >= 0]
    count = np.bincount(step, minlength=len(facts.steps))
    elements = by_operator(facts, rows, _taken_in, np.int64) if len(rows) else rows
    has_shapes = facts.trace.events.dims_code[rows] >= 0
    has_memory = bool((facts.trace.events.category == Category.MEMORY).any())
    allocated = facts.allocated_bytes[rows] if has_memory else np.zeros_like(rows)
    return Inputs(
        operators=np.where(count > 0, count, NONE)[chosen],
        elements=_sum(step, elements, has_shapes, count)[chosen],
        allocated_bytes=_sum(step, allocated, np.full(len(rows), has_memory), count)[chosen],
    )


def _taken_in(name: str, shapes: list[tuple[int, ...]]) -> int:
    at = 1 if name in _INPUT_IS_SECOND else 0
    return math.prod(shapes[at]) if len(shapes) > at and shapes[at] else 0


def _sum(step: Int64s, sizes: Int64s, known: Bools, count: Int64s) -> Int64s:
    """By step; `NONE` unless the size of each operator is known and there is any."""
    total = np.bincount(step, sizes.clip(min=0), len(count))
    missing = np.bincount(step, ~known, len(count))
    return np.where((missing == 0) & (total > 0), total.clip(max=_MOST), NONE).astype(np.int64)
