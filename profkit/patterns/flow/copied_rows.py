"""Layers on rows that are copies of fewer rows: gathered, repeated, resampled, or put side by side with such.

What a layer takes is followed back through what works on each row by itself and is linear: copies, sums and
differences, concatenation, and what makes the copies. Which call made it, the data flow of the located step tells; how
many rows there are, the shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.patterns.calls import Call
from profkit.patterns.flow.followed import FollowedCalls, followed_calls
from profkit.patterns.flow.joined_copies import shapes_of_joined
from profkit.patterns.shapes import parse_numbers

Shape = tuple[int, ...]

GATHERS = frozenset(("embedding", "gather", "index", "index_select", "repeat", "repeat_interleave", "take_along_dim"))
"""What makes rows of those of its first tensor."""
RESAMPLES = frozenset(
    f"{form}{kind}"
    for kind in ("bicubic2d", "bilinear2d", "linear1d", "nearest1d", "nearest2d", "nearest3d", "trilinear3d")
    for form in ("upsample_", "_upsample_")
) | frozenset(f"_upsample_nearest_exact{dims}d" for dims in (1, 2, 3))
"""What makes rows as sums of those of its tensor, with weights that add up to one: a bias may be added before it."""
_COPIES = frozenset(("clone", "contiguous", "flatten", "reshape"))
SUMS = frozenset(("add", "neg", "rsub", "sub"))
_SCALES = frozenset(("div", "mul"))
_CONVOLUTIONS = frozenset(("conv1d", "conv2d", "conv3d"))
_RIGHT = frozenset(("linear", "matmul", "mm"))
_DEEPEST, _MOST_LOOKED_AT = 16, 100
"""Calls on one way from a layer back to its rows, and on all of them."""
_LEAST_ELEMENTS = 1 << 14
"""A layer on fewer takes as long as its call."""


class CopiedRows(Struct, frozen=True):
    """A layer's operator ``row`` in the located step, which multiplies so many ``rows`` of ``features`` and gives so
    many ``results`` for each. They come from ``sources``: how many rows, of how many of the features. So many ``parts``
    stand side by side.

    ``gathers`` and ``sums`` are operators on the way, with the features of each; ``others``, such as concatenations,
    are not needed if the layer comes first. Nor are ``joined`` copies of one tensor, as sums broadcast. What those that
    are ``shared`` make, something else takes too. It ``is_resampled`` if rows in between are sums of others. If it
    ``is_broadcast``, one tensor is repeated along a dimension of size one, as arithmetic does for nothing.
    """

    row: int
    rows: int
    features: int
    results: int
    sources: tuple[tuple[int, int], ...]
    parts: int
    gathers: tuple[tuple[int, int], ...]
    sums: tuple[tuple[int, int], ...]
    others: tuple[int, ...]
    shared: frozenset[int]
    is_broadcast: bool
    is_resampled: bool = False
    joined: tuple[int, ...] = ()

    @property
    def distinct(self) -> int:
        """The most rows that one of the sources has."""
        return max(rows for rows, _ in self.sources)

    @property
    def share(self) -> float:
        """Of the layer's arithmetic, what is left if it is applied to the sources."""
        return sum(rows * features for rows, features in self.sources) / (self.rows * self.features)


class _Layer(Struct, frozen=True):
    """Which tensor a layer takes, its shape, its features, and how many results each row has."""

    place: int
    shape: Shape
    features: int
    results: int


class _Input(Struct, frozen=True):
    """A tensor that a call takes: its maker, its shape, its features, and whether others stand beside it."""

    maker: int
    shape: Shape
    features: int
    is_part: bool = False


class _Way:
    """What was met on the way back from one layer."""

    def __init__(self) -> None:
        self.sources: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self.gathers: dict[int, int] = {}
        self.sums: dict[int, int] = {}
        self.joined: set[int] = set()
        self.others: set[int] = set()
        self.copying: set[int] = set()
        self.seen: set[tuple[int, int, int]] = set()
        self.parts: list[int] = [0]

    def kept(self) -> _Way:
        """What was met so far."""
        copy = _Way()
        copy.take(self)
        return copy

    def take(self, other: _Way) -> None:
        """Know what the other knows, and no more."""
        self.sources, self.gathers, self.sums = dict(other.sources), dict(other.gathers), dict(other.sums)
        self.joined, self.others, self.copying = set(other.joined), set(other.others), set(other.copying)
        self.seen, self.parts = set(other.seen), list(other.parts)

    def part(self) -> int:
        """A number for one more of what stands side by side."""
        self.parts.append(len(self.parts))
        return self.parts[-1]

    @property
    def calls(self) -> set[int]:
        return {*self.gathers, *self.sums, *self.joined, *self.others}


def copied_rows(facts: Facts) -> Iterator[CopiedRows]:
    """The layers of the located step, in order of time."""
    calls, found = followed_calls(facts), list[tuple[int, _Layer, _Way]]()
    if calls is None:
        return
    for number, call in calls.operator.items():
        layer, makers = _layer(call), calls.takes(number)
        if layer is not None and layer.place < len(makers) and math.prod(layer.shape) >= _LEAST_ELEMENTS:
            way = _Way()
            _go_back(calls, makers[layer.place], layer.shape, layer.features, way, 0, 0)
            if way.copying:
                found.append((number, layer, way))
    layers = {number for number, _, _ in found}
    for number, layer, way in found:
        yield _found(calls, number, layer, way, layers)


def _found(calls: FollowedCalls, number: int, layer: _Layer, way: _Way, layers: set[int]) -> CopiedRows:
    row, known = calls.row, way.calls | layers
    return CopiedRows(
        row=row[number],
        rows=math.prod(layer.shape) // layer.features,
        features=layer.features,
        results=layer.results,
        sources=tuple(way.sources.values()),
        parts=len({part for part, *_ in way.sources}),
        gathers=tuple((row[one], of) for one, of in sorted(way.gathers.items())),
        sums=tuple((row[one], of) for one, of in sorted(way.sums.items())),
        others=tuple(row[one] for one in sorted(way.others)),
        shared=frozenset(row[one] for one in way.calls if not calls.users.get(one, set()) <= known),
        is_broadcast=len(way.sources) == 1
        and bool(way.gathers or way.joined)
        and all(_broadcasts(calls.operator[one]) for one in way.gathers),
        is_resampled=any(base_name(calls.operator[one].name) in RESAMPLES for one in way.gathers),
        joined=tuple(row[one] for one in sorted(way.joined)),
    )


def _broadcasts(call: Call) -> bool:
    return base_name(call.name) in ("repeat", "repeat_interleave") and 1 in call.shapes[0]


def _layer(call: Call) -> _Layer | None:
    name, shapes = base_name(call.name), [tuple(shape) for shape in call.shapes]
    place = 1 if name == "addmm" else 0
    if len(shapes) < place + 2:
        return None
    shape, weight = shapes[place : place + 2]
    if name in _CONVOLUTIONS:
        is_pointwise = len(weight) > 2 and set(weight[2:]) == {1} and len(shape) == len(weight)
        strides = parse_numbers(call.argument(3)) or (1,)
        if is_pointwise and weight[1] == shape[1] and set(strides) == {1}:
            return _Layer(place, shape, shape[1], weight[0])
    elif (name in _RIGHT or place) and len(weight) == 2 and len(shape) > 1:
        features, results = weight[::-1] if name == "linear" else weight
        if shape[-1] == features:
            return _Layer(place, shape, features, results)
    return None


def _go_back(calls: FollowedCalls, maker: int, shape: Shape, features: int, way: _Way, part: int, depth: int) -> None:
    """Note where the rows of a tensor of this shape come from. ``part`` numbers what stands side by side: one layer for
    each would do, however often the part takes the same rows. A sum of rows of which none are copies is a source, as a
    layer on each of its terms would take longer."""
    size, call = math.prod(shape), calls.operator.get(maker)
    before = way.kept() if call is not None and base_name(call.name) in SUMS else way
    smaller = calls.expanded.get((maker, size), size)
    if 0 < smaller < size and smaller % features == 0:
        way.copying.add(maker)
        size = smaller
    inputs: list[_Input] = []
    if maker >= 0:
        if (part, maker, features) in way.seen:
            return
        if depth < _DEEPEST and len(way.seen) < _MOST_LOOKED_AT:
            inputs = _inputs(calls, maker, features, way)
        way.seen.add((part, maker, features))
    for one in inputs:
        if not one.is_part and math.prod(one.shape) < size:
            way.copying.add(maker)
        number = way.part() if one.is_part else part
        _go_back(calls, one.maker, one.shape, one.features, way, number, depth + 1)
    is_plain_sum = before is not way and maker in way.sums and way.copying == before.copying
    if is_plain_sum:
        way.take(before)
        way.seen.add((part, maker, features))
    if is_plain_sum or not inputs:
        size = math.prod(shape) if size % features else size
        way.sources[part, maker, size, features] = size // features, features


def _inputs(calls: FollowedCalls, maker: int, features: int, way: _Way) -> list[_Input]:
    """What a call makes its rows of, if a layer could come before it; else nothing."""
    call = calls.operator.get(maker)
    makers = calls.takes(maker) if call is not None else ()
    if call is None or not makers or max(makers) >= maker or not call.shapes:
        return []
    if (copies := shapes_of_joined(calls, maker)) is not None:
        source, result = copies
        stays = any(one == many == features for one, many in zip(source, result, strict=True))
        way.joined.update([maker] * stays)
        return [_Input(makers[0], source, features)] * stays
    if not call.shapes[0]:
        return []
    first = _Input(makers[0], tuple(call.shapes[0]), features)
    return _inputs_of(call, makers, first, maker, way)


def _inputs_of(call: Call, makers: tuple[int, ...], first: _Input, maker: int, way: _Way) -> list[_Input]:
    name, features, given = base_name(call.name), first.features, [tuple(shape) for shape in call.shapes if shape]
    if name in GATHERS | RESAMPLES and features in first.shape and not _repeats_features(call, features):
        way.gathers[maker] = features
        return [first]
    if name in _COPIES or (name in _SCALES and len(makers) == 1):
        way.others.add(maker)
        return [first]
    if len(given) != len(makers):
        return []
    if name in SUMS and all(features in shape for shape in given):
        way.sums[maker] = features
        return [_Input(one, shape, features) for one, shape in zip(makers, given, strict=True)]
    if name == "cat" and (sizes := _side_by_side(call, given, features)):
        way.others.add(maker)
        return [_Input(*one, is_part=True) for one in zip(makers, given, sizes, strict=True)]
    return []


def _repeats_features(call: Call, features: int) -> bool:
    """Whether it makes so many features of fewer: that is no copy of rows."""
    times, given = parse_numbers(call.argument(1)), call.shapes[0]
    padded = (1,) * (len(times) - len(given)) + tuple(given)
    is_repeat = base_name(call.name) == "repeat"
    return is_repeat and any(k > 1 and k * have == features for k, have in zip(times, padded, strict=False))


def _side_by_side(call: Call, shapes: list[Shape], features: int) -> tuple[int, ...]:
    """The features of each tensor that is put side by side with the others; empty if they are put below each other."""
    axis = parse_numbers(call.argument(1))
    if len(axis) != 1 or not shapes or not -len(shapes[0]) <= axis[0] < len(shapes[0]):
        return ()
    if any(len(one) != len(shapes[0]) for one in shapes):
        return ()
    sizes = tuple(one[axis[0]] for one in shapes)
    return sizes if sum(sizes) == features and all(sizes) else ()
