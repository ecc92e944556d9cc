"""How much of each row of a batch is padding, by the numbers in it.

Padding is the same constant at the end (or the beginning) of rows of different lengths. The constant alone proves
nothing: images have black borders, sparse features end in zeros, a causal mask is half of one value. So what counts is
told apart by four signs. The lengths differ from row to row; the constant hardly occurs elsewhere in the rows; the
other end of the rows is not the same constant, as it is in centred images; and the lengths do not grow by one from row
to row, as in a triangular mask. A tensor of only two values is a mask of something else: it counts if a tensor with the
same rows and positions comes with it. Targets of ordinal regression look the same and come alone.

A row of nothing but the constant proves nothing either: a table of features has columns that are the same for all
samples, and read along its columns they are such rows. They count if other rows show padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MASK, IDS, VALUES = "mask", "ids", "values"
_LEAST_LENGTH = 8
"""Of fewer positions padding costs little, and a few equal numbers are no sign of it."""
_MOST_ELEMENTS = 1 << 19
"""Numbers that are compared for one tensor: a few milliseconds. Of a larger one fewer rows are looked at."""
_PER_POSITION = 8
"""Numbers that stand for all of a position, such as some of its features."""
_MOST_INSIDE = {MASK: 0.02, IDS: 0.05, VALUES: 0.01}
"""Share of the used positions that may hold the padding's value: token 0 may be a word too, while a frame of zeros
amid a recording is rare. Sparse features and binary sequences have 50 % and more."""
_LEAST_LENGTHS = 3
"""Lengths that must differ: two come about by a single flag at the end of a row."""
_LEAST_SPREAD = {MASK: 0.02, IDS: 0.02, VALUES: 0.1}
"""Between the longest and the shortest row, of the length. A few flags before columns of zeros span less."""
_LEAST_PADDED = 0.05
"""Of all positions; less is not worth a line."""
_OTHER_END = 0.25
"""How much of the padding's value may be at the other end, of what is at this one: a centred image has as much."""


class RowLengths(NamedTuple):
    """The positions that each row uses. ``inside`` counts how many of these hold the padding's value all the same, and
    ``other_end`` how many of them are at the rows' other end."""

    length: int
    used: NDArray[np.int64]
    inside: int
    other_end: int
    value: bytes
    kind: str


class Layout(NamedTuple):
    """Which dimension counts the rows, which the positions, and whether the padding comes first."""

    batch_dim: int
    dim: int
    is_left: bool


def layouts_of(shape: Sequence[int]) -> Iterator[Layout]:
    """The ways in which a tensor of this shape may hold padded rows. Rows come first, or second where positions do."""
    for batch_dim, dim in [*((0, dim) for dim in range(1, len(shape))), (1, 0)]:
        if len(shape) >= 2 and shape[dim] >= _LEAST_LENGTH:
            yield Layout(batch_dim, dim, is_left=False)
            yield Layout(batch_dim, dim, is_left=True)


def measure_rows(bits: NDArray[Any], is_integer: bool, layout: Layout) -> RowLengths | None:
    """Measure each row of a tensor, given as the bits of its numbers; None if no two rows end alike."""
    rows = _as_rows(bits, layout)
    if not rows.size:
        return None
    last = np.ascontiguousarray(rows[:, -1])
    ends, counts = np.unique(last, axis=0, return_counts=True)
    value = ends[counts.argmax()]
    if counts.max() < min(2, len(rows)):
        return None
    is_value = (rows == value).all(axis=2)
    tail = _run(is_value[:, ::-1])
    used = rows.shape[1] - tail
    head = np.minimum(_run(is_value), used)
    return RowLengths(
        length=rows.shape[1],
        used=used,
        inside=int(is_value.sum() - tail.sum()),
        other_end=int(head.sum()),
        value=value.tobytes(),
        kind=_kind_of(bits, rows, is_integer),
    )


def count_used(bits: NDArray[Any], layout: Layout, value: bytes) -> NDArray[np.int64] | None:
    """How many positions each row uses, where the ``value`` of the padding is known; None if it does not fit."""
    rows = _as_rows(bits, layout)
    padding = np.frombuffer(value, dtype=rows.dtype) if len(value) % rows.itemsize == 0 else rows[:0, 0, 0]
    if not rows.size or len(padding) != rows.shape[2]:
        return None
    used: NDArray[np.int64] = rows.shape[1] - _run((rows == padding).all(axis=2)[:, ::-1])
    return used


def are_padded(seen: Sequence[RowLengths]) -> bool:
    """Whether these rows, of one or several batches, end in padding."""
    used = np.concatenate([one.used[one.used > 0] for one in seen])
    total, length = sum(one.length * int((one.used > 0).sum()) for one in seen), max(one.length for one in seen)
    padded, kind = total - int(used.sum()), seen[-1].kind
    if not used.size or padded < _LEAST_PADDED * total or any(_is_triangular(one) for one in seen):
        return False
    if sum(one.inside for one in seen) > _MOST_INSIDE[kind] * max(int(used.sum()), 1):
        return False
    if sum(one.other_end for one in seen) > _OTHER_END * padded:
        return False
    spread = int(used.max() - used.min())
    return len(np.unique(used)) >= _LEAST_LENGTHS and spread >= _LEAST_SPREAD[kind] * length


def _as_rows(bits: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Rows by positions by the few numbers that stand for a position; padding that comes first is put last."""
    moved = np.moveaxis(bits, (layout.batch_dim, layout.dim), (0, 1))
    rest = moved.shape[2:]
    each = max(1, int(_PER_POSITION ** (1 / max(len(rest), 1))))
    moved = moved[(slice(None), slice(None), *(slice(None, None, -(-size // each) or 1) for size in rest))]
    numbers = math.prod(moved.shape[1:])
    wanted = max(2, _MOST_ELEMENTS // max(numbers, 1))
    if len(moved) > wanted:
        moved = moved[np.linspace(0, len(moved) - 1, wanted).astype(np.int64)]
    rows = moved.reshape(*moved.shape[:2], math.prod(moved.shape[2:]))
    if layout.is_left:
        rows = rows[:, ::-1]
    return rows


def _run(is_value: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many positions each row begins with that hold the value."""
    first = (~is_value).argmax(axis=1)
    run: NDArray[np.int64] = np.where(is_value.all(axis=1), is_value.shape[1], first).astype(np.int64)
    return run


def _kind_of(bits: NDArray[Any], rows: NDArray[Any], is_integer: bool) -> str:
    if ((rows == rows.min()) | (rows == rows.max())).all():
        return MASK
    return IDS if is_integer and bits.ndim == 2 else VALUES


def _is_triangular(one: RowLengths) -> bool:
    steps = np.diff(one.used)
    return len(steps) >= 2 and bool((steps == steps[0]).all()) and abs(int(steps[0])) == 1
