"""The operators of one step as calls: what shapes each takes, and what shape it makes where its name tells that."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import ELEMENTWISE, base_name
from profkit.patterns.calls import Call, distinct_calls
from profkit.patterns.loops.located import in_located_step
from profkit.patterns.shapes import first_shape, result_of_linear, result_of_product, result_of_repeat
from profkit.trace.events import Bools, Int64s, Rows
from profkit.trace.statistics import distinct

Shape = tuple[int, ...]

COPIES = frozenset(("clone", "contiguous", "repeat"))
"""What works on each element by itself, besides the elementwise operators."""
FILLING = frozenset(("empty_like", "full_like", "ones_like", "zeros_like"))
PRODUCTS = frozenset(("bmm", "matmul", "mm"))


class StepCalls(Struct, frozen=True, dict=True):
    """The forward operators that the program itself calls in the located step, or else in the measured ones, in order
    of time. ``number`` is the number of each one's call; ``shapes`` are what each distinct call takes, ``results`` what
    it makes (empty if that is unknown). ``over`` are the places at which the steps end."""

    rows: Rows
    over: Rows
    calls: list[Call]
    number: Int64s
    shapes: list[list[Shape]]
    results: list[Shape]

    def taking(self, shape: Shape) -> Rows:
        """The places of the operators that take a tensor of this shape."""
        return self._where(self._takers.get(shape, ()))

    def making(self, shape: Shape) -> Rows:
        """The places of the operators that make one."""
        return self._where(self._makers.get(shape, ()))

    @cached_property
    def _takers(self) -> dict[Shape, list[int]]:
        """The calls that take each shape."""
        return _numbers_by_shape(self.shapes)

    @cached_property
    def _makers(self) -> dict[Shape, list[int]]:
        return _numbers_by_shape([[result] for result in self.results])

    def _where(self, numbers: Sequence[int]) -> Rows:
        """The places of the calls of these numbers."""
        wanted: Bools = np.zeros(len(self.calls), dtype=bool)
        wanted[list(numbers)] = True
        return np.flatnonzero(wanted[self.number]) if numbers else self.rows[:0]


def _numbers_by_shape(shapes: Sequence[Sequence[Shape]]) -> dict[Shape, list[int]]:
    """For each shape the numbers of the calls that have it."""
    found: dict[Shape, list[int]] = {}
    for number, given in enumerate(shapes):
        for shape in set(given):
            found.setdefault(shape, []).append(number)
    return found


@derived_once
def step_calls(facts: Facts) -> StepCalls:
    """Those of a recording; without any if no shapes are known."""
    rows = _called(facts)
    calls, number = distinct_calls(facts, rows)
    shapes = [[tuple(shape) for shape in call.shapes] for call in calls]
    results = [_result_of(call, given) for call, given in zip(calls, shapes, strict=True)]
    over = np.append(np.flatnonzero(np.diff(facts.step_of(rows))) + 1, len(rows))
    return StepCalls(rows, over, calls, number, shapes, results)


def repeated_in_measured(facts: Facts, rows: Rows) -> Rows:
    """The operators of the measured steps that repeat these of the step that was looked at, or are these."""
    seen, repeats = _by_first_seen(facts)
    begin, end = (np.searchsorted(seen, distinct(rows), side=side) for side in ("left", "right"))
    count = end - begin
    places = np.arange(count.sum()) + np.repeat(begin - (np.cumsum(count) - count), count)
    return np.sort(repeats[places])


@derived_once
def _by_first_seen(facts: Facts) -> tuple[Rows, Rows]:
    """For all operators of the measured steps the one that each repeats, in order, and themselves."""
    every = facts.measured_rows(facts.trace.mask_of(facts.operators.rows))
    seen = first_seen(facts, every)
    order = np.argsort(seen, kind="stable")
    return seen[order], every[order]


def first_seen(facts: Facts, rows: Rows) -> Rows:
    """The operator of the step that was looked at which each of these repeats, or is."""
    repeated = facts.repeats.row[rows]
    return np.where(repeated >= 0, repeated, rows)


def _called(facts: Facts) -> Rows:
    """The forward operators that the program itself calls in the located step, or else in the measured ones."""
    inside = facts.tree.outermost(facts.trace.mask_of(facts.operators.rows))
    inside &= ~(facts.updates.inside | facts.lines.backward)
    rows = np.flatnonzero(inside & (facts.trace.events.lane == facts.steps.main_lane))
    located = in_located_step(facts, rows)
    return located if located.size else rows[facts.measured[rows]]


def _result_of(call: Call, given: Sequence[Shape]) -> Shape:
    name = base_name(call.name)
    if name == "repeat":
        return result_of_repeat(first_shape(given), call.argument(1))
    if name in PRODUCTS:
        return result_of_product(given)
    if name == "linear":
        return result_of_linear(given)
    if name not in ELEMENTWISE | COPIES | FILLING:
        return ()
    known = [shape for shape in given if shape]
    try:
        return tuple(np.broadcast_shapes(*known)) if known else ()
    except ValueError:  # not what the operator was given: the recording is damaged
        return ()
