"""The shapes of the tensors that operators take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.derive.operators.operators import parse_dims
from profkit.trace.events import Rows
from profkit.trace.statistics import distinct_rows

Shapes = Sequence[Sequence[int]]


def shapes_of(facts: Facts, row: int) -> Shapes:
    """One shape per input; empty if shapes were not recorded."""
    return parse_dims(facts.trace.text_of(int(facts.trace.events.dims_code[row])))


def with_shapes(facts: Facts, rows: Rows) -> Rows:
    """Each operator whose shapes were recorded. Any other is replaced by the operator of the located step that it
    repeats, `NONE` if it repeats none."""
    return np.where(facts.trace.events.dims_code[rows] >= 0, rows, facts.repeats.row[rows])


def first_shape(shapes: Shapes) -> Sequence[int]:
    """The shape of the first input; no dimensions if there is none."""
    return next(iter(shapes), ())


def result_of_linear(shapes: Shapes) -> tuple[int, ...]:
    """The shape that a linear layer returns; empty if it is none."""
    if len(shapes) < 2 or len(shapes[1]) != 2 or not shapes[0]:
        return ()
    return (*shapes[0][:-1], shapes[1][0])


def by_operator(
    facts: Facts, rows: Rows, tell: Callable[[str, list[tuple[int, ...]]], Any], of: type = bool
) -> NDArray[Any]:
    """For each operator what ``tell`` says of its name and its inputs' shapes. It is asked once per distinct pair of
    them."""
    names, codes = facts.trace.events.name_code[rows], facts.trace.events.dims_code[rows]
    first, kind = distinct_rows(names, codes)
    known = [
        tell(base_name(facts.trace.names[name]), [tuple(shape) for shape in parse_dims(facts.trace.text_of(code))])
        for name, code in zip(names[first].tolist(), codes[first].tolist(), strict=True)
    ]
    return np.array(known, dtype=of)[kind]


def by_shapes(facts: Facts, rows: Rows | slice, tell: Callable[[Shapes], Any], of: type = bool) -> NDArray[Any]:
    """For each row what ``tell`` says of its inputs' shapes. It is asked once per distinct list of shapes."""
    codes = facts.trace.events.dims_code[rows]
    first, kind = distinct_rows(codes)
    known = [tell(parse_dims(facts.trace.text_of(code))) for code in codes[first].tolist()]
    return np.array(known, dtype=of)[kind]
