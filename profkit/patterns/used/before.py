"""What goes into a tensor of which a part is read: the same part of it is enough, operator by operator, back to where
something else reads the whole.

Shapes tell which operator makes what the next one takes, as in `parts`. A slice of what an operator makes is a
slice of what it takes if it works along other dimensions: a linear layer along the last one, a convolution over single
positions along the channels, a sum along those that it sums over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.families import ELEMENTWISE, base_name, writes_in_place
from profkit.patterns.calls import Call
from profkit.patterns.shapes import parse_numbers
from profkit.patterns.step_calls import COPIES, PRODUCTS, Shape, StepCalls
from profkit.trace.events import Rows

_LEAST_ELEMENTS = 1 << 16
"""Working on fewer takes as long as the call."""
_MOST_USED = 0.5
"""Of a larger part, cutting first gives back less than the price is uncertain by."""
_FURTHEST = 200
"""Operators that are walked back over: a chain through all layers of a deep network, and its branches."""
_RANDOM = frozenset(("dropout", "feature_dropout", "native_dropout", "rrelu"))
"""Of a smaller tensor they would draw other numbers."""
_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
LAYERS = frozenset(("linear", *_CONVOLUTIONS))
"""Their second input is weights."""
_SUMS = frozenset(("amax", "amin", "mean", "sum"))
_PARTWISE = LAYERS | _SUMS


class Before(Struct, frozen=True):
    """The operator at ``place`` makes a tensor of the ``shape``, of which the share ``used`` is read."""

    place: int
    shape: Shape
    used: float


class _Maker(Struct, frozen=True):
    """An operator at a ``place`` whose result, of the ``shape``, is read in part along the ``along`` dimensions."""

    place: int
    shape: Shape
    along: frozenset[int]
    used: float


def partwise_making(shape: Shape, step: StepCalls, results: Sequence[Shape]) -> Rows:
    """The places of the linear layers, convolutions over single positions, and sums along some dimensions that make a
    tensor of this shape. The ``results`` are those of `all_results`."""
    wanted = [
        result == shape and base_name(call.name) in _PARTWISE for call, result in zip(step.calls, results, strict=True)
    ]
    return np.flatnonzero(np.array(wanted, dtype=bool)[step.number]) if wanted else step.rows[:0]


def parts_before(maker: Before, along: frozenset[int], step: StepCalls, results: Sequence[Shape]) -> Iterator[Before]:
    """The operators before this one of which a like part is enough. ``along`` are the dimensions of its result in which
    only a part is read, and the ``results`` those of `all_results`."""
    waiting, seen = [_Maker(maker.place, maker.shape, along, maker.used)], {maker.place}
    while waiting and len(seen) < _FURTHEST:
        reader = waiting.pop()
        for found in _makers_for(reader, results, step):
            if found.place in seen:
                continue
            seen.add(found.place)
            waiting.append(found)
            if not _is_slice(step.calls[step.number[found.place]]):
                yield Before(found.place, found.shape, found.used)


def all_results(step: StepCalls) -> list[Shape]:
    """What each distinct call makes, also if it is a layer or a slice."""
    return [
        _result_of(call, given, known) for call, given, known in zip(step.calls, step.shapes, step.results, strict=True)
    ]


def _makers_for(reader: _Maker, results: Sequence[Shape], step: StepCalls) -> Iterator[_Maker]:
    """Who makes what the reader takes, if nobody else takes that and a part of it is enough."""
    number = step.number[reader.place]
    call, given = step.calls[number], step.shapes[number]
    for shape in dict.fromkeys(given):
        taken = _taken_along(call, given, shape, reader)
        if not taken or math.prod(shape) < _LEAST_ELEMENTS:
            continue
        used = reader.used * (math.prod(reader.shape) / math.prod(shape) if _is_slice(call) else 1)
        makers = _only_makers(reader.place, shape, given.count(shape), results, step) if used <= _MOST_USED else ()
        for maker in makers:
            yield _Maker(maker, shape, taken, used)


def _only_makers(place: int, shape: Shape, count: int, results: Sequence[Shape], step: StepCalls) -> list[int]:
    """The places of the last operators before this one that make a tensor of this shape, as many as it takes of them;
    none if others take such tensors before the next one is made, or if a part of one does not need a part alone."""
    makers = np.flatnonzero(np.array([result == shape for result in results], dtype=bool)[step.number])
    over = int(step.over.searchsorted(place, side="right"))
    begin, end = int(step.over[over - 1]) if over else 0, int(step.over[over])
    makers = makers[(makers >= begin) & (makers < end)]
    before, after = makers[makers < place][-count:].tolist(), makers[makers >= place].tolist()
    if len(before) < count or not all(_gives_part(step.calls[step.number[at]]) for at in before):
        return []
    takes = step.taking(shape)
    takers = takes[(takes > before[0]) & (takes <= min([end - 1, *after]))].tolist()
    return [] if set(takers) - {place} else before


def _gives_part(call: Call) -> bool:
    is_in_place = writes_in_place(call.name)  # what it writes to may be read later
    name = base_name(call.name)
    known = (ELEMENTWISE | COPIES | PRODUCTS | {"slice", *_PARTWISE}) - _RANDOM - {"repeat"}
    return not is_in_place and name in known


def _is_slice(call: Call) -> bool:
    return base_name(call.name) == "slice"


def _result_of(call: Call, given: Sequence[Shape], known: Shape) -> Shape:
    """The shape that the operator makes; nothing if that is not known."""
    name = base_name(call.name)
    if known or not given:
        return known
    if name in _CONVOLUTIONS and _is_pointwise(call, given):
        return (given[0][0], given[1][0], *given[0][2:])
    if name in _SUMS:
        reduced, kept = _reduced(call, given[0]), call.argument(2) == "True"
        lengths = [1 if at in reduced else length for at, length in enumerate(given[0]) if kept or at not in reduced]
        return tuple(lengths) if reduced else ()
    return _slice_of(call, given[0]) if name == "slice" else ()


def _reduced(call: Call, whole: Shape) -> set[int]:
    """Along which dimensions a sum goes; none if it sums everything, or that is not known."""
    numbers = parse_numbers(call.argument(1))
    return (
        {at % len(whole) for at in numbers}
        if whole and all(-len(whole) <= at < len(whole) for at in numbers)
        else set()
    )


def _is_pointwise(call: Call, given: Sequence[Shape]) -> bool:
    """Whether a convolution looks at single positions, each once."""
    spatial = _CONVOLUTIONS[base_name(call.name)]
    if len(given) < 2 or len(given[0]) != spatial + 2 or len(given[1]) != spatial + 2 or max(given[1][2:]) > 1:
        return False
    stride, padding = call.argument(3).strip("[]"), call.argument(4).strip("[]")
    return set(stride.replace(" ", "").split(",")) == {"1"} and set(padding.replace(" ", "").split(",")) == {"0"}


def _slice_of(call: Call, whole: Shape) -> Shape:
    try:
        along, begin, end, *every = (int(text) for text in call.arguments[1:] if text)
        length = whole[along]
    except (ValueError, IndexError):
        return ()
    begin, end = (min(length, max(0, at + length if at < 0 else at)) for at in (begin, end))
    left = math.ceil((end - begin) / max(1, *every))
    along %= len(whole)
    return (*whole[:along], left, *whole[along + 1 :]) if 0 < left <= length else ()


def _taken_along(call: Call, given: Sequence[Shape], shape: Shape, reader: _Maker) -> frozenset[int]:
    """Along which dimensions of what it takes a part is enough; none if that is all of it, or not known."""
    name, along, whole = base_name(call.name), reader.along, reader.shape
    if name in ELEMENTWISE:
        before = len(whole) - len(shape)
        fits = all(at >= before and shape[at - before] == whole[at] for at in along)
        return frozenset(at - before for at in along) if fits else frozenset()
    if shape != given[0] or given.count(shape) > 1:
        return frozenset()
    if name in _SUMS:
        reduced = _reduced(call, shape)
        left = [at for at in range(len(shape)) if at not in reduced]
        same = len(shape) == len(whole)
        return frozenset(at if same else left[at] for at in along if not same or at in left)
    if len(shape) != len(whole):
        return frozenset()
    if name == "slice":
        return along | {at for at, length in enumerate(shape) if whole[at] != length}
    mixed = {1} if name in _CONVOLUTIONS else {len(whole) - 1} if name in PRODUCTS | {"linear"} else frozenset()
    return frozenset() if along & mixed else along
