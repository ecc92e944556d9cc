"""Tables of the rows of all samples with the rows of all others, of which each sample reads its own block.

A batch is flattened, a table of all its rows with all targets is computed, and then split by the targets of each
sample. Of each piece only that sample's rows are read: one part in as many as there are samples is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from msgspec import Struct

from profkit.derive.families import ELEMENTWISE, base_name
from profkit.patterns.shapes import first_shape, parse_numbers
from profkit.patterns.step_calls import COPIES, PRODUCTS, Shape, StepCalls
from profkit.trace.events import Rows

_LEAST_ELEMENTS = 1 << 16
"""Working on fewer takes as long as the call."""
_LEAST_SAMPLES = 2
_SPLIT, _PICK = "split_with_sizes", "select"
_EXTREMES = frozenset(("max", "min"))
_PAIRWISE = ELEMENTWISE | COPIES | PRODUCTS | _EXTREMES | {"cdist"}
"""What makes a table of pairs."""
_REDUCING = frozenset(("all", "amax", "amin", "any", "mean", "prod", "sum"))
_VIEWING = frozenset(("_to_copy", "detach", "permute", "reshape", "select", "slice", "to", "unsqueeze", "view"))
"""What hands a table on."""
_SPLITS_AT = 3
"""Dimensions: samples, rows of each, and targets of all."""


class OwnBlocks(Struct, frozen=True):
    """The places of the operators that ``make`` a table of the ``shape``, and of those that ``read`` one of so many
    ``samples``' blocks each."""

    make: Rows
    read: Rows
    shape: Shape
    samples: int


def own_blocks(step: StepCalls) -> Iterator[OwnBlocks]:
    """Where a table is split by sample, and of each piece the rows of another sample are read."""
    for at in _places_of(step, _SPLIT):
        whole = tuple(first_shape(step.shapes[step.number[at]]))
        if len(whole) != _SPLITS_AT or whole[0] < _LEAST_SAMPLES:
            continue
        samples, rows, targets = whole
        read, table = _own_rows(step, at, whole), (samples * rows, targets)
        make = _makers(step, at, table, whole) if len(read) == samples else step.rows[:0]
        if make.size:
            yield OwnBlocks(make, np.array([at, *read]), table, samples)


def _places_of(step: StepCalls, name: str) -> list[int]:
    named = np.array([base_name(call.name) == name for call in step.calls], dtype=bool)
    return np.flatnonzero(named[step.number]).tolist() if len(named) else []


def _own_rows(step: StepCalls, split: int, whole: Shape) -> list[int]:
    """The places at which the piece of each sample gives up that sample's rows, in order. None if the pieces have not
    all targets together, or if something else takes one. How long the pieces are, the recording tells of short lists
    alone."""
    found: list[int] = []
    left = whole[2]
    for at in range(split + 1, len(step.number)):
        call, shapes = step.calls[step.number[at]], step.shapes[step.number[at]]
        pieces = [shape for shape in shapes if len(shape) == _SPLITS_AT and shape[:2] == whole[:2]]
        if not pieces or len(found) == whole[0]:
            continue
        is_own = base_name(call.name) == _PICK and call.argument(1) == "0" and call.argument(2) == str(len(found))
        if not is_own:
            break
        found.append(at)
        left -= pieces[0][2]
    return found if left == 0 else []


def _makers(step: StepCalls, split: int, table: Shape, whole: Shape) -> Rows:
    """The operators before the split that make the table or what goes into it; none if something else takes such a
    tensor."""
    begin = int(np.append(0, step.over)[np.searchsorted(step.over, split, side="right")])
    make: list[int] = []
    for at in range(begin, split):
        number = step.number[at]
        name, shapes = base_name(step.calls[number].name), step.shapes[number]
        is_taken = any(_is_of(shape, table, whole) for shape in shapes)
        compares = name in _PAIRWISE and (is_taken or _is_of(_result_of(step, number), table, whole))
        reduces = name in _REDUCING and is_taken and _keeps_pairs(shapes[0], step.calls[number].argument(1), table)
        if compares or reduces:
            make.append(at)
        elif is_taken and name not in _VIEWING:
            return step.rows[:0]
    return np.array(make, dtype=np.int64)


def _is_of(shape: Shape, table: Shape, whole: Shape) -> bool:
    """Whether it has the rows and targets of the table, with more numbers for each pair or not."""
    is_large = math.prod(shape) >= _LEAST_ELEMENTS
    return is_large and (shape[:2] == table or shape[:3] == whole)


def _keeps_pairs(shape: Shape, dimensions: str, table: Shape) -> bool:
    """Whether a reduction along these dimensions leaves a number or more for each pair."""
    along, pairs = parse_numbers(dimensions), len(table) if shape[:2] == table else _SPLITS_AT
    return bool(along) and all(at % len(shape) >= pairs for at in along)


def _result_of(step: StepCalls, number: int) -> Shape:
    """The shape of what a call makes, also of distances and of the larger of two."""
    known, name = [shape for shape in step.shapes[number] if shape], base_name(step.calls[number].name)
    if name == "cdist" and len(known) > 1:
        return (*known[0][:-1], known[1][-2]) if len(known[1]) > 1 else ()
    if name in _EXTREMES and len(known) > 1:
        with suppress(ValueError):  # not what the operator was given: the recording is damaged
            return tuple(np.broadcast_shapes(*known))
    return step.results[number]
