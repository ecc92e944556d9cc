"""Decompositions of which only a part is read: the values without the vectors, or the first columns of a square factor.

The trace does not say which tensor an operator takes, but its shape. So vectors count as unread if no operator of the
step takes a tensor of their shape behind the decomposition. One that comes before may read what the last step left, so
it has to follow an operator that makes such a tensor. NumPy shows its reads as operators, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.patterns.calls import Call
from profkit.patterns.step_calls import Shape, StepCalls, step_calls
from profkit.patterns.used.parts import CUTS, DIAGONALS, left_by_cut
from profkit.trace.events import Rows

_COMPLETING = ("linalg_svd", 1, "True"), ("svd", 1, "False")
"""``linalg_svd(A, full_matrices, ...)`` and ``svd(A, some, compute_uv)``."""
_SINGULAR = frozenset(name for name, *_ in _COMPLETING)
_DECOMPOSING = _SINGULAR | {"linalg_eig", "linalg_eigh"}
_TURNING = frozenset(("adjoint", "detach", "mH", "mT", "numpy_T", "t", "transpose"))
"""They take a whole square factor and move nothing: what takes their result tells."""


class Unread(Enum):
    """What nothing reads of a decomposition."""

    VECTORS = "vectors"
    COMPLETION = "completion"


class PartlyRead(Struct, frozen=True):
    """``rows`` are equal calls in the step that was looked at, each of which decomposes matrices of the ``shape``;
    ``name`` is theirs. ``completes`` says that they make square factors of a matrix that is not."""

    rows: Rows
    name: str
    shape: Shape
    completes: bool
    unread: Unread


def partly_read(facts: Facts) -> Iterator[PartlyRead]:
    """For each distinct call the decompositions of which a part is not read."""
    step = step_calls(facts)
    for number, (call, given) in enumerate(zip(step.calls, step.shapes, strict=True)):
        name, matrix = base_name(call.name), given[0] if given else ()
        if name in _DECOMPOSING and len(matrix) > 1:
            places = np.flatnonzero(step.number == number)
            completes = matrix[-1] != matrix[-2] and _completes(call)
            if (unread := _unread(step, matrix, completes, places)) is not None:
                yield PartlyRead(step.rows[places], name, matrix, completes, unread)


def _completes(call: Call) -> bool:
    return any(base_name(call.name) == name and call.argument(at) == text for name, at, text in _COMPLETING)


def _unread(step: StepCalls, matrix: Shape, completes: bool, places: Rows) -> Unread | None:
    *batch, high, wide = matrix
    small, large = sorted((high, wide))
    sides = ((high, high), (wide, wide)) if completes else ((high, small), (small, wide))
    if not any(_is_read(step, (*batch, *side), places) for side in sides):
        return Unread.VECTORS
    square = (*batch, large, large)
    if completes and all(_begins(step, at, square, small) for at in step.taking(square).tolist()):
        return Unread.COMPLETION
    return None


def _is_read(step: StepCalls, shape: Shape, places: Rows) -> bool:
    """Whether an operator behind takes such a tensor, or one before that nothing in the step has made."""
    takes, makes = np.setdiff1d(step.taking(shape), places), step.making(shape)
    made_at = makes.min() if makes.size else len(step.rows)
    return bool(((takes > places.min()) | (takes <= made_at)).any())


def _begins(step: StepCalls, at: int, square: Shape, small: int) -> bool:
    """Whether this operator only turns the factor, or leaves no more of its first columns or rows than the shorter side
    has."""
    call = step.calls[step.number[at]]
    if base_name(call.name) in _TURNING:
        return True
    if base_name(call.name) not in CUTS - DIAGONALS or not (left := left_by_cut(call, square)):
        return False
    if left == square:  # a slice of all comes before the one that cuts
        return True
    along, *given = (int(text) for text in call.arguments[1:] if text)
    begin = given[0] if given else 0
    return along % len(square) >= len(square) - 2 and begin >= 0 and begin + left[along] <= small
