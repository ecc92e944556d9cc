"""Inverses of matrices that nothing but products reads, by the data flow of the located step."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import VIEW, base_name
from profkit.patterns.calls import Call
from profkit.patterns.flow.followed import FollowedCalls, followed_calls

_INVERTING = frozenset(("inverse", "linalg_inv", "linalg_inv_ex"))
_PRODUCTS = frozenset(("addmm", "addmv", "baddbmm", "bmm", "dot", "einsum", "linear", "matmul", "mm", "mv"))


class MultipliedInverse(Struct, frozen=True):
    """``row`` inverts ``stacked`` matrices with ``side`` rows; all products with the result multiply ``columns``
    vectors by each."""

    row: int
    stacked: int
    side: int
    columns: int


@derived_once
def multiplied_inverses(facts: Facts) -> tuple[MultipliedInverse, ...]:
    """Without the data flow, none."""
    calls = followed_calls(facts)
    if calls is None:
        return ()
    inverses = [number for number, call in calls.operator.items() if base_name(call.name) in _INVERTING]
    return tuple(found for number in inverses for found in _read_by_products(calls, number))


def _read_by_products(calls: FollowedCalls, number: int) -> Iterator[MultipliedInverse]:
    shape = tuple(calls.operator[number].shapes[0])
    readers = [one for one, makers in enumerate(calls.located.flow.takes) if number in makers]
    known = [one for one in readers if one not in calls.operator or not _is_view(calls.operator[one])]
    products = [calls.operator[one] for one in known if one in calls.operator]
    is_all = len(products) == len(known) > 0 and calls.located.is_known(number, max(readers))
    if len(shape) < 2 or not is_all or any(base_name(call.name) not in _PRODUCTS for call in products):
        return
    stacked, side = math.prod(shape[:-2]), shape[-1]
    columns = [_columns(call, shape, stacked * side) for call in products]
    if all(columns):
        yield MultipliedInverse(calls.row[number], stacked, side, sum(columns))


def _is_view(call: Call) -> bool:
    return base_name(call.name) in VIEW


def _columns(call: Call, inverse: tuple[int, ...], rows: int) -> int:
    """How many vectors a product multiplies by each matrix, at least; 0 if its shapes do not tell. The inverse is one
    of the factors: the smallest of the others that has a number for each of its ``rows`` is what is solved for."""
    sizes = [math.prod(shape) for shape in call.shapes if shape]
    if math.prod(inverse) not in sizes:
        return 0
    sizes.remove(math.prod(inverse))
    fitting = [size // rows for size in sizes if size and size % rows == 0]
    return min(fitting, default=0)
