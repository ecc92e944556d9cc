"""Large tensors that hold little: made of much smaller ones, worked on element by element, and reduced again.

A table of all pairs, written out, is the usual case: ``(x[:, None] - y).square().sum(-1)``. The trace does not say
which tensor an operator takes, but its shape. So all that takes or makes a tensor of the shape in the step has to fit;
anything else, such as a layer, may be what the tensor really is for.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, base_name
from profkit.patterns.calls import Call
from profkit.patterns.step_calls import COPIES, FILLING, Shape, StepCalls, step_calls
from profkit.trace.events import Rows
from profkit.trace.statistics import distinct

_LEAST_ELEMENTS = 1 << 20
"""Four megabytes of float32: more than second-level caches hold, so that each operator goes to memory."""
_LEAST_FACTOR = 8
"""How many times larger than each of its inputs it is, and than what is left of it."""
_MOST_SHAPES = 50
"""Distinct shapes that are looked at, the largest first."""
_REDUCTIONS = """
    all amax amin any argmax argmin cumsum logsumexp max mean median min nansum norm prod std sum topk var"""
_REDUCING = frozenset(_REDUCTIONS.split())
_MULTIPLYING = frozenset(("mul", "multiply"))
_ORDERING = frozenset(("ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "lt"))
_COMPARING = _ORDERING | frozenset(("eq", "ne"))
_PRODUCTS = frozenset(("matmul", "mm", "mv"))
"""Of a table of zeros and ones with a few vectors: sums over what each row picks."""
_INFLATES, _WORKS_ON, _REDUCES = "inflates", "works on", "reduces"
"""What an operator does with tensors of a shape."""


class Intermediate(Struct, frozen=True):
    """``rows`` are the operators of the step that was looked at which take or make tensors of the ``shape``; ``makers``
    those that make it of smaller ones. ``names`` are their base names in order, each once. ``is_order`` says that the
    table only holds which of two vectors' elements are larger."""

    rows: Rows
    makers: Rows
    shape: Shape
    names: tuple[str, ...]
    is_order: bool


def intermediates(facts: Facts) -> list[Intermediate]:
    """Those of the located step, or else of the measured ones."""
    step = step_calls(facts)
    large = {result for result in step.results if math.prod(result) >= _LEAST_ELEMENTS and result}
    looked_at = sorted(large, key=math.prod, reverse=True)[:_MOST_SHAPES]
    return [found for shape in looked_at if (found := _read(shape, step)) is not None]


def _read(shape: Shape, step: StepCalls) -> Intermediate | None:
    """What works on tensors of this shape, if all of it fits in each step."""
    touching = distinct(np.concatenate([step.taking(shape), step.making(shape)]))
    makers: list[int] = []
    is_order = _is_order(shape, step, touching)
    for places in np.split(touching, np.searchsorted(touching, step.over[:-1])):
        numbers = step.number[places].tolist()
        kinds = [_kind_of(step.calls[number], step.shapes[number], shape, is_order) for number in numbers]
        if kinds and not _fit(kinds, [step.shapes[number].count(shape) for number in numbers], numbers, step):
            return None
        makers += [place for place, kind in zip(places.tolist(), kinds, strict=True) if kind == _INFLATES]
    names = tuple(dict.fromkeys(base_name(step.calls[number].name) for number in step.number[touching].tolist()))
    return Intermediate(step.rows[touching], step.rows[makers], shape, names, is_order) if makers else None


def _is_order(shape: Shape, step: StepCalls, touching: Rows) -> bool:
    """Whether all that makes this matrix of smaller tensors compares a column with a row, for order at least once."""
    if len(shape) != 2:
        return False
    made = [number for number in step.number[touching].tolist() if shape not in step.shapes[number]]
    names = {base_name(step.calls[number].name) for number in made}
    vectors = [sorted(math.prod(given) for given in step.shapes[number] if given) for number in made]
    return bool(names & _ORDERING) and names <= _COMPARING and all(sizes == sorted(shape) for sizes in vectors)


def _fit(kinds: list[str], taken: list[int], numbers: list[int], step: StepCalls) -> bool:
    """Whether it begins with what makes the tensor of smaller ones, ends with a reduction, has nothing else between,
    and no operator takes two tensors of the shape before two were made: one would come from elsewhere. A product of two
    is taken for that of a tensor with itself."""
    if not all(kinds) or (kinds[0], kinds[-1]) != (_INFLATES, _REDUCES):
        return False
    made = 0
    for kind, count, number in zip(kinds, taken, numbers, strict=True):
        is_square = count == 2 and made >= 1 and base_name(step.calls[number].name) in _MULTIPLYING
        if count > made and not is_square:
            return False
        made += kind != _REDUCES
    return True


def _kind_of(call: Call, given: list[Shape], shape: Shape, is_order: bool) -> str:
    """What an operator does with tensors of the shape; nothing for what else they may be for."""
    name = base_name(call.name)
    if is_order and name in _PRODUCTS and given.count(shape) == 1:
        others = sum(math.prod(other) for other in given if other != shape)
        return _REDUCES if others * _LEAST_FACTOR <= math.prod(shape) else ""
    if shape in given:
        return _REDUCES if name in _REDUCING else _WORKS_ON if name in ELEMENTWISE | COPIES | FILLING else ""
    largest = max(map(math.prod, filter(None, given)), default=0)
    is_small = largest * _LEAST_FACTOR <= math.prod(shape)
    return _INFLATES if name in ELEMENTWISE | COPIES and is_small else ""
