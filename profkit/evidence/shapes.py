"""The shapes of the tensors that operators take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.derive.facts import Facts
from profkit.derive.operators.operators import parse_dims
from profkit.trace.events import Rows
from profkit.trace.values import distinct_rows

Shapes = Sequence[Sequence[int]]


def shapes_of(facts: Facts, row: int) -> Shapes:
    """One for each input; none where they were not recorded."""
    return parse_dims(facts.trace.text_of(int(facts.trace.events.dims_code[row])))


def first_shape(shapes: Shapes) -> Sequence[int]:
    """That of the first input, without dimensions where there is none."""
    return next(iter(shapes), ())


def by_shapes(facts: Facts, rows: Rows | slice, tell: Callable[[Shapes], Any], of: type = bool) -> NDArray[Any]:
    """For each row what ``tell`` says of its inputs' shapes, which is asked once for each distinct list of them."""
    codes = facts.trace.events.dims_code[rows]
    first, kind = distinct_rows(codes)
    told = [tell(parse_dims(facts.trace.text_of(code))) for code in codes[first].tolist()]
    return np.array(told, dtype=of)[kind]
