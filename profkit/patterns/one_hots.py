"""Products that only pick rows: of one-hot vectors and a matrix. Of each row of the product one number is not zero.

The trace does not say which tensor an operator takes, but its shape. So all that takes a tensor of the shape after
`one_hot` has made one has to be a conversion of its type or such a product; anything else may be what it is for.
"""

from __future__ import annotations

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.patterns.calls import Call
from profkit.patterns.shapes import parse_numbers
from profkit.patterns.step_calls import Shape, StepCalls, step_calls
from profkit.trace.events import Rows

_MAKES = "one_hot"
_CONVERTS = frozenset(("_to_copy", "clone", "contiguous", "to", "type_as"))
_PICKS = frozenset(("linear", "matmul", "mm"))
_ALLOCATES = frozenset(("empty_like", "ones_like", "zeros_like"))
"""They take a tensor for its shape."""


class OneHot(Struct, frozen=True):
    """``rows`` are the operators of the step that was looked at which make vectors of the ``shape``, convert them and
    multiply with them; ``products`` are the latter."""

    rows: Rows
    products: Rows
    shape: Shape


def one_hot_products(facts: Facts) -> list[OneHot]:
    """Those of the located step, or else of the measured ones, one for each shape."""
    step = step_calls(facts)
    made = [_made_by(call, given) for call, given in zip(step.calls, step.shapes, strict=True)]
    return [found for shape in dict.fromkeys(filter(None, made)) if (found := _read(shape, made, step)) is not None]


def _made_by(call: Call, given: list[Shape]) -> Shape:
    """The shape of the vectors that the call makes; empty if it makes none, or as many classes as its numbers have."""
    classes = parse_numbers(call.argument(1)) if base_name(call.name) == _MAKES and given else ()
    return (*given[0], *classes) if len(classes) == 1 and classes[0] > 0 else ()


def _read(shape: Shape, made: list[Shape], step: StepCalls) -> OneHot | None:
    rows: list[int] = []
    products: list[int] = []
    is_made, others = False, {number for number, result in enumerate(step.results) if result == shape}
    for place, number in enumerate(step.number.tolist()):
        name = base_name(step.calls[number].name)
        if made[number] == shape:
            is_made = True
            rows.append(place)
        elif shape in step.shapes[number]:
            picks = name in _PICKS and _multiplies_once(step.shapes[number], shape)
            if not (is_made and (picks or name in _CONVERTS)):
                return None
            rows.append(place)
            products += [place] * picks
        elif number in others and name not in _ALLOCATES:
            return None
    return OneHot(step.rows[rows], step.rows[products], shape) if products else None


def _multiplies_once(given: list[Shape], shape: Shape) -> bool:
    """Whether the vectors come first, and what they are multiplied with is a single matrix."""
    return given[:1] == [shape] and shape not in given[1:] and len(given) > 1 and len(given[1]) == 2
