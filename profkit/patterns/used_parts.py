"""Results of which only a part is read: operators that work element by element on whole tensors, before a slice.

The trace does not say which tensor an operator takes, but its shape. So a result counts as read whole if anything but a
slice takes a tensor of that shape before the next one is made: that may be another tensor, and then nothing is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, base_name
from profkit.patterns.calls import Call, distinct_calls
from profkit.patterns.loops.located import in_located_step
from profkit.trace.events import Int64s, Rows

Shape = tuple[int, ...]

_LEAST_ELEMENTS = 1 << 16
"""Working on fewer takes as long as the call."""
_MOST_USED = 0.5
"""Of a larger part, cutting first gives back less than the price is uncertain by."""
_MOST_SHAPES = 50
"""Distinct shapes that are looked at, the largest first."""
_COPIES = frozenset(("clone", "contiguous", "repeat"))
"""Like the elementwise ones, they give the same if the part is cut out before."""
_RANDOM = frozenset(("dropout", "feature_dropout", "native_dropout", "rrelu"))
"""Of a smaller tensor they would draw other numbers."""
_CUTS = frozenset(("narrow", "select", "slice"))


class UsedPart(Struct, frozen=True):
    """``rows`` are operators of the step that was looked at, each of which works on a tensor of the ``shape``, of which
    the share ``used`` is read; ``cuts`` are the slices that read it."""

    rows: Rows
    cuts: Rows
    shape: Shape
    used: float


def mostly_unused(facts: Facts) -> list[UsedPart]:
    """Tensors of which at most half is read, each with the operators that make it."""
    rows = _called(facts)
    if not rows.size:
        return []
    calls, number = distinct_calls(facts, rows)
    shapes = [[tuple(shape) for shape in call.shapes] for call in calls]
    results = [_result_of(call, given) for call, given in zip(calls, shapes, strict=True)]
    cut = {shape for call, given in zip(calls, shapes, strict=True) if _cuts_much(call, given) for shape in given[:1]}
    looked_at = sorted(cut, key=math.prod, reverse=True)[:_MOST_SHAPES]
    over = np.append(np.flatnonzero(np.diff(facts.step_of(rows))) + 1, len(rows))  # where each step ends
    return [part for shape in looked_at for part in _parts_of(shape, rows, over, calls, number, shapes, results)]


def _called(facts: Facts) -> Rows:
    """The forward operators that the program itself calls in the located step, or else in the measured ones."""
    inside = facts.tree.outermost(facts.trace.mask_of(facts.operators.rows))
    inside &= ~(facts.updates.inside | facts.lines.backward)
    rows = np.flatnonzero(inside & (facts.trace.events.lane == facts.steps.main_lane))
    located = in_located_step(facts, rows)
    return located if located.size else rows[facts.measured[rows]]


def _result_of(call: Call, given: Sequence[Shape]) -> Shape:
    """The shape of what the operator makes, if cutting before it would give the same part; else nothing."""
    name = base_name(call.name)
    if call.name.endswith("_") and not call.name.endswith("__"):
        return ()  # what it writes to may be read later
    if name == "repeat":
        return _repeated(given[0] if given else (), call.argument(1))
    if name in _RANDOM or name not in ELEMENTWISE | _COPIES:
        return ()
    known = [shape for shape in given if shape]
    try:
        return tuple(np.broadcast_shapes(*known)) if known else ()
    except ValueError:  # not what the operator was given: the recording is damaged
        return ()


def _repeated(shape: Shape, times: str) -> Shape:
    numbers = [int(text) for text in times.strip("[]").split(",") if text.strip().isdigit()]
    if len(numbers) < len(shape) or not numbers:
        return ()
    padded = (1,) * (len(numbers) - len(shape)) + shape
    return tuple(size * count for size, count in zip(padded, numbers, strict=True))


def _cuts_much(call: Call, given: Sequence[Shape]) -> bool:
    whole = given[0] if given else ()
    return math.prod(whole) >= _LEAST_ELEMENTS and base_name(call.name) in _CUTS and bool(_cut(call, whole))


def _cut(call: Call, whole: Shape) -> Shape:
    """The shape of what a slice or a selection leaves of a tensor; nothing if its arguments are not known."""
    try:
        given = [int(text) for text in call.arguments[1:] if text]
    except ValueError:
        return ()
    dimension = given[0] + (len(whole) if given[0] < 0 else 0) if given else -1
    if not 0 <= dimension < len(whole):
        return ()
    length, name = whole[dimension], base_name(call.name)
    if name == "select":
        left = 1
    elif name == "narrow" and len(given) > 2:
        left = given[2]
    elif name == "slice" and len(given) > 2:
        begin, end = (min(length, at + length if at < 0 else at) for at in given[1:3])
        left = math.ceil((end - begin) / max(given[3] if len(given) > 3 else 1, 1))
    else:
        return ()
    return (*whole[:dimension], left, *whole[dimension + 1 :]) if 0 < left <= length else ()


def _parts_of(
    shape: Shape,
    rows: Rows,
    over: Rows,
    calls: Sequence[Call],
    number: Int64s,
    shapes: Sequence[Sequence[Shape]],
    results: Sequence[Shape],
) -> Iterator[UsedPart]:
    """Walk from one operator that makes a tensor of this shape to the next in its step. Those whose result only the
    next one takes form a chain; it ends with what only slices take."""
    takes = np.flatnonzero(np.array([shape in given for given in shapes])[number])
    makes = np.flatnonzero(np.array([result == shape for result in results])[number]).tolist()
    chain: list[int] = []
    for maker, following in pairwise([*makes, len(rows)]):
        chain = [*chain, maker] if chain and maker in takes else [maker]
        until = min(following + 1, int(over[np.searchsorted(over, maker, side="right")]))
        taken_by = takes[slice(*np.searchsorted(takes, [maker + 1, until]))]
        if len(taken_by) == 1 and taken_by[0] == following:
            continue  # the next one takes it, and nothing else does
        cuts = [_read_by(at, shape, calls, number) for at in taken_by.tolist()]
        used = sum(share for share in cuts if share)
        if cuts and all(cuts) and used <= _MOST_USED:
            yield UsedPart(rows[chain], rows[taken_by], shape, used)
        chain = []


def _read_by(at: int, shape: Shape, calls: Sequence[Call], number: Int64s) -> float:
    """The share of the tensor that the slice at this place, and those that directly follow it, leave; 0 if it is none
    or not known."""
    left = shape
    for call in (calls[number[place]] for place in range(at, len(number))):
        given = call.shapes
        is_next = base_name(call.name) in _CUTS and given and tuple(given[0]) == left
        if not is_next:
            break
        left = _cut(call, left)
        if not left:
            return 0.0
        if base_name(call.name) == "select":
            break  # the result has a dimension less
    return math.prod(left) / math.prod(shape) if left != shape else 0.0
