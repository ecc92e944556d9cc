"""The shapes of the tensors that operators take."""

from __future__ import annotations

import re
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
_NUMBER = re.compile(r"-?[0-9]{1,19}")
"""Of 64 bits: PyTorch has no longer ones, and Python refuses to read some."""


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


def result_of_product(shapes: Shapes) -> tuple[int, ...]:
    """The shape of a product of matrices, perhaps of many; empty if it is none."""
    left, right = ([*map(tuple, shapes), (), ()])[:2]
    if len(left) < 2 or len(right) < 2:
        return ()
    try:
        return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    except ValueError:  # not what the operator was given: the recording is damaged
        return ()


def result_of_repeat(shape: Sequence[int], times: str) -> tuple[int, ...]:
    """The shape that `repeat` returns, given the recorded text of its numbers; empty if that tells none."""
    numbers = parse_numbers(times)
    if len(numbers) < len(shape):
        return ()
    padded = (1,) * (len(numbers) - len(shape)) + tuple(shape)
    return tuple(size * count for size, count in zip(padded, numbers, strict=True))


def parse_numbers(text: str) -> tuple[int, ...]:
    """``'[1, 8, 1]'`` or ``'8'`` → numbers; empty for anything else."""
    parts = text.strip("[]").replace(" ", "").split(",")
    return tuple(map(int, parts)) if all(map(_NUMBER.fullmatch, parts)) else ()


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
