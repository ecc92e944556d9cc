"""Products that only pick rows: of one-hot vectors and a matrix. Of each row of the product one number is not zero.

The trace does not say which tensor an operator takes, but its shape. So all that takes a tensor of the shape after
`one_hot` has made one has to be a conversion of its type or such a product; anything else may be what it is for. A
recurrent layer begins with such a product, which is its own operator or a part of one.

Where the watch of calls read a factor's numbers, it does not matter how the vectors were made, nor what else has their
shape: scores of all items have that of one-hot items.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import base_name, operators_of
from profkit.patterns.calls import Call
from profkit.patterns.loops.located import call_marks
from profkit.patterns.program import located_operators
from profkit.patterns.shapes import by_shapes, parse_numbers, shapes_of
from profkit.patterns.step_calls import Shape, StepCalls, step_calls
from profkit.trace.events import Rows
from profkit.trace.statistics import among

_MAKES = "one_hot"
_CONVERTS = frozenset(("_to_copy", "clone", "contiguous", "to", "type_as"))
_PICKS = frozenset(("linear", "matmul", "mm"))
_RECURRENT = frozenset(("gru", "lstm", "rnn_relu", "rnn_tanh"))
_ONE_LAYER = "mkldnn_rnn_layer"
"""All time steps of a layer in one operator: it takes the input, its weights and those of the state."""
_BEGINS = frozenset(("linear", _ONE_LAYER))
_ALLOCATES = frozenset(("empty_like", "ones_like", "zeros_like"))
"""They take a tensor for its shape."""


class OneHot(Struct, frozen=True):
    """``rows`` are the operators of the step that was looked at which make vectors of the ``shape``, convert them and
    multiply with them; ``products`` are the latter. ``layers`` are operators that multiply and do more, as recurrent
    layers: of their time a part is ``kept`` without the product. Products inside recurrent layers are among the
    ``products``."""

    rows: Rows
    products: Rows
    shape: Shape
    layers: Rows
    kept: float
    is_recurrent: bool


def one_hot_products(facts: Facts) -> list[OneHot]:
    """Those of the located step, or else of the measured ones, one for each shape."""
    step = step_calls(facts)
    made = [_made_by(call, given) for call, given in zip(step.calls, step.shapes, strict=True)]
    shapes = dict.fromkeys(filter(None, made))
    return [found for shape in shapes if (found := _read(facts, shape, made, step)) is not None]


def one_hot_factors(facts: Facts) -> list[OneHot]:
    """Those of the located step that the watch of calls saw by their numbers, one for each shape. What makes them is
    not among their ``rows``."""
    known, mark_of = facts.run.recomputation, call_marks(facts)
    calls_of = dict[Shape, list[int]]()
    for one in (known.sparse if known is not None else None) or ():
        if one.picks and 0 <= one.call < len(mark_of) and mark_of[one.call] >= 0:
            calls_of.setdefault(one.shape, []).append(one.call)
    found, located = list[OneHot](), located_operators(facts)
    for shape, calls in calls_of.items():
        below = located[facts.tree.nearest_ancestor(facts.trace.mask_of(mark_of[calls]), of=located) >= 0]
        products, recurrent = (below[operators_of(facts.trace, names)[below]] for names in (_PICKS, _RECURRENT))
        inside = _products_inside(facts, recurrent, shape)
        if inside is not None:
            begun, layers, kept = inside
            rows = np.sort(np.concatenate([products, begun]))
            found += [OneHot(rows, rows, shape, layers, kept, bool(recurrent.size))] * bool(rows.size or layers.size)
    return found


def _made_by(call: Call, given: list[Shape]) -> Shape:
    """The shape of the vectors that the call makes; empty if it makes none, or as many classes as its numbers have."""
    classes = parse_numbers(call.argument(1)) if base_name(call.name) == _MAKES and given else ()
    return (*given[0], *classes) if len(classes) == 1 and classes[0] > 0 else ()


def _read(facts: Facts, shape: Shape, made: list[Shape], step: StepCalls) -> OneHot | None:
    places: list[int] = []
    products: list[int] = []
    recurrent: list[int] = []
    is_made, others = False, {number for number, result in enumerate(step.results) if result == shape}
    for place, number in enumerate(step.number.tolist()):
        name = base_name(step.calls[number].name)
        if made[number] == shape:
            is_made = True
            places.append(place)
        elif shape in step.shapes[number]:
            picks = name in _PICKS and _multiplies_once(step.shapes[number], shape)
            if is_made and name in _RECURRENT and step.shapes[number].count(shape) == 1:
                recurrent.append(place)
                continue
            if not (is_made and (picks or name in _CONVERTS)):
                return None
            places.append(place)
            products += [place] * picks
        elif number in others and name not in _ALLOCATES:
            return None
    inside = _products_inside(facts, step.rows[recurrent], shape)
    if inside is None or not (products or recurrent):
        return None
    begun, layers, kept = inside
    rows, picking = (np.sort(np.concatenate([step.rows[one], begun])) for one in (places, products))
    return OneHot(rows, picking, shape, layers, kept, bool(recurrent))


def _products_inside(facts: Facts, recurrent: Rows, shape: Shape) -> tuple[Rows, Rows, float] | None:
    """The products with which these recurrent layers begin, those that are one operator with the rest of the layer, and
    the part of these that is left without them. None if one of the layers shows neither."""
    mask = facts.trace.mask_of(recurrent)
    rows = np.flatnonzero(facts.tree.under(mask) & operators_of(facts.trace, _BEGINS))
    rows = rows[by_shapes(facts, rows, lambda given: bool(given) and _holds(tuple(given[0]), shape))]
    if not among(recurrent, facts.tree.nearest_ancestor(mask, of=rows)).all():
        return None
    whole = operators_of(facts.trace, frozenset((_ONE_LAYER,)))[rows]
    weights = shapes_of(facts, int(rows[whole][0]))[1:3] if whole.any() else []
    sizes = [math.prod(one) for one in weights]
    return rows[~whole], rows[whole], sizes[1] / sum(sizes) if len(sizes) == 2 and all(sizes) else 1.0


def _holds(given: Shape, vectors: Shape) -> bool:
    """Whether it is the vectors, perhaps with the first two dimensions exchanged."""
    return given[-1:] == vectors[-1:] and math.prod(given) == math.prod(vectors)


def _multiplies_once(given: list[Shape], shape: Shape) -> bool:
    """Whether the vectors come first, and what they are multiplied with is a single matrix."""
    return given[:1] == [shape] and shape not in given[1:] and len(given) > 1 and len(given[1]) == 2
