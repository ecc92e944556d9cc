"""Products of several factors: what their order costs, and what the cheapest order would.

A product of three matrices is the same whichever two are multiplied first, but not what it takes. The factors come from
an `einsum` of three or more tensors, or from products whose results go into nothing but another product, which the data
flow of the located step tells. Each dimension has a label; two factors that share one are multiplied along it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import base_name
from profkit.patterns.calls import Call, call_of
from profkit.patterns.flow.followed import FollowedCalls, followed_calls
from profkit.patterns.program import program_operators
from profkit.patterns.shapes import parse_numbers
from profkit.trace.events import Rows
from profkit.trace.statistics import distinct_rows

Labels = frozenset[int]
Order = int | tuple["Order", "Order"]
"""A factor by its number, or the product of two."""
EINSUM = frozenset(("einsum",))
_PRODUCTS = frozenset(("addmm", "baddbmm", "bmm", "linear", "matmul", "mm"))
_TURNING = frozenset(("adjoint", "numpy_T", "permute", "swapaxes", "swapdims", "t", "transpose"))
_ADDING = frozenset(("addmm", "baddbmm"))
"""Their first tensor is added; the factors follow."""
_MOST_FACTORS = 7
"""Of so many, all orders are tried: two thousand pairs of parts."""
_OPERATIONS_PER_BYTE, _BYTES = 4, 4
"""What a processor computes in products while its memory moves a byte, at the least: a core does 40 to 100 operations
in a nanosecond, and its memory moves 10 bytes. A GPU does ten times as many."""


class Contraction(Struct, frozen=True):
    """``factors`` by their labels, of which each has one of the ``sizes``; ``kept`` are those of the result. ``done``
    is the order in which the program multiplies, ``rows`` its operators: in the located step, of one call, or in all
    measured steps, of an `einsum`."""

    factors: tuple[Labels, ...]
    sizes: tuple[int, ...]
    kept: Labels
    done: Order
    rows: Rows
    is_einsum: bool

    def size(self, labels: Labels) -> int:
        return math.prod(self.sizes[label] for label in labels)

    def cost(self, order: Order) -> float:
        """In operations: of each product those of its arithmetic, or those that fit into the time of its bytes."""
        if isinstance(order, int):
            return 0.0
        parts = [self._labels(_factors(part)) for part in (*order, order)]
        operations = 2 * self.size(parts[0] | parts[1])
        moved = _OPERATIONS_PER_BYTE * _BYTES * sum(map(self.size, parts))
        return self.cost(order[0]) + self.cost(order[1]) + max(operations, moved)

    def largest(self, order: Order) -> int:
        """The most numbers that a product on the way has, but for the last."""
        if isinstance(order, int):
            return 0
        inner = [part for part in order if not isinstance(part, int)]
        sizes = [max(self.size(self._labels(_factors(part))), self.largest(part)) for part in inner]
        return max(sizes, default=0)

    def _labels(self, factors: frozenset[int]) -> Labels:
        """Of the product of these factors: summed out is what neither the result nor another factor has."""
        inside, outside = Labels(), self.kept
        for number, labels in enumerate(self.factors):
            if number in factors:
                inside |= labels
            else:
                outside |= labels
        return inside & outside

    def cheapest(self) -> Order:
        """The order that costs least. Of equal ones the first: earlier factors first."""

        @cache
        def best(factors: frozenset[int]) -> tuple[float, Order]:
            if len(factors) == 1:
                (only,) = factors
                return 0.0, only
            found = []
            for one in _parts_with_first(factors):
                order = best(one)[1], best(factors - one)[1]
                found.append((self.cost(order), order))
            return min(found, key=lambda pair: pair[0])

        return best(frozenset(range(len(self.factors))))[1]


def _parts_with_first(factors: frozenset[int]) -> Iterator[frozenset[int]]:
    """The parts of the set, but for all of it, that hold its first factor."""
    first, *others = sorted(factors)
    for chosen in range(2 ** len(others) - 1):
        yield frozenset([first, *(other for place, other in enumerate(others) if chosen >> place & 1)])


def _factors(order: Order) -> frozenset[int]:
    return frozenset([order]) if isinstance(order, int) else _factors(order[0]) | _factors(order[1])


@derived_once
def contractions(facts: Facts) -> tuple[Contraction, ...]:
    """All of three factors or more."""
    return (*_of_einsums(facts), *_of_chains(facts))


def _of_einsums(facts: Facts) -> Iterator[Contraction]:
    rows, events = program_operators(facts, EINSUM), facts.trace.events
    first, kind = distinct_rows(events.dims_code[rows], facts.lines.site[rows]) if rows.size else (rows, rows)
    for number, row in enumerate(rows[first].tolist()):
        factors = [shape for shape in call_of(facts, row).shapes if shape]
        is_plain = 3 <= len(factors) <= _MOST_FACTORS and _goes_left_to_right(facts, row, factors)
        if is_plain and (found := _read_einsum(facts, row, factors)) is not None:
            labels, sizes, kept = found
            yield Contraction(labels, sizes, kept, _left_to_right(len(labels)), rows[kind == number], True)


def _read_einsum(
    facts: Facts, row: int, factors: Sequence[Sequence[int]]
) -> tuple[tuple[Labels, ...], tuple[int, ...], Labels] | None:
    """The labels of each factor, all labels' sizes, and those of the result. PyTorch first turns each factor so that
    all have all labels in one order, the result's first, with size one where there is none; at the end it drops those
    that it has summed out."""
    inside = _directly_inside(facts, row)
    turned = [call for call in inside if base_name(call.name) == "permute"][: len(factors)]
    shapes = [_turned(call) for call in turned]
    if len(shapes) < len(factors) or len(set(map(len, shapes))) != 1:
        return None
    if any(math.prod(shape) != math.prod(given) for shape, given in zip(shapes, factors, strict=True)):
        return None
    sizes = tuple(max(column) for column in zip(*shapes, strict=True))
    labels = tuple(Labels(place for place, size in enumerate(shape) if size > 1) for shape in shapes)
    last = inside[-1]
    is_cut = base_name(last.name) == "view" and last.shapes and len(last.shapes[0]) == len(sizes)
    results = len(parse_numbers(last.argument(1))) if is_cut else len(sizes)
    return labels, sizes, Labels(range(results))


def _directly_inside(facts: Facts, row: int) -> list[Call]:
    inside = np.arange(row + 1, int(facts.tree.stop[row]))
    return [call_of(facts, int(one)) for one in inside[facts.tree.parent[inside] == row].tolist()]


def _turned(call: Call) -> tuple[int, ...]:
    order, shape = parse_numbers(call.argument(1)), call.shapes[0] if call.shapes else ()
    return tuple(shape[place] for place in order) if sorted(order) == [*range(len(shape))] else ()


def _goes_left_to_right(facts: Facts, row: int, factors: Sequence[Sequence[int]]) -> bool:
    """Whether PyTorch multiplies the first two factors first, as it does without `opt_einsum`."""
    products = [call for call in _directly_inside(facts, row) if base_name(call.name) in ("bmm", "mul")]
    taken = sorted(math.prod(shape) for call in products[:1] for shape in call.shapes)
    return len(products) == len(factors) - 1 and taken == sorted(map(math.prod, factors[:2]))


def _left_to_right(factors: int) -> Order:
    done: Order = 0
    for number in range(1, factors):
        done = done, number
    return done


class _Product(Struct, frozen=True):
    """A product of two matrices, or of stacks of as many: the makers of both, and the sizes of the sides. If not
    ``is_plain``, something is added to it. ``turns`` says that it takes the second matrix turned."""

    makers: tuple[int, int]
    stacked: int
    left: int
    along: int
    right: int
    is_plain: bool
    turns: bool


def _of_chains(facts: Facts) -> Iterator[Contraction]:
    calls = followed_calls(facts)
    if calls is None:
        return
    products = {one: found for one, call in calls.operator.items() if (found := _product(calls, one, call)) is not None}
    users = {one: _only_user(calls, one) for one in products}
    inner = {one for one, user in users.items() if user in products and _joins(products, one, user)}
    for number, product in products.items():
        if number not in inner and inner.intersection(product.makers):
            chain = _Chain(calls, products, inner)
            if (whole := chain.read(number)) is not None:
                yield whole


def _only_user(calls: FollowedCalls, number: int) -> int:
    users = calls.users.get(number, set())
    return next(iter(users)) if len(users) == 1 else -1


def _product(calls: FollowedCalls, number: int, call: Call) -> _Product | None:
    name, makers, shapes = base_name(call.name), calls.takes(number), [tuple(shape) for shape in call.shapes if shape]
    if name not in _PRODUCTS or len(makers) != len(shapes):
        return None
    is_plain, first = len(makers) == 2, 1 if name in _ADDING else 0
    makers, shapes = makers[first : first + 2], shapes[first : first + 2]
    if len(shapes) != 2 or len(set(makers)) != 2 or min(map(len, shapes)) < 2:
        return None
    one, other = shapes if name != "linear" else (shapes[0], shapes[1][::-1])
    pair, turns = (makers[0], makers[1]), name == "linear"
    if one[-1] != other[-2]:
        return None
    if len(other) == 2:
        return _Product(pair, 1, math.prod(one[:-1]), one[-1], other[-1], is_plain, turns)
    sides = one[-2], one[-1], other[-1]
    return _Product(pair, math.prod(one[:-2]), *sides, is_plain, turns) if one[:-2] == other[:-2] else None


def _joins(products: dict[int, _Product], number: int, user: int) -> bool:
    """Whether the user takes the result as a matrix of its sides, or turned."""
    mine, other = products[number], products[user]
    taken = (other.left, other.along) if other.makers[0] == number else (other.along, other.right)
    return (
        mine.is_plain and mine.stacked == other.stacked and taken in ((mine.left, mine.right), (mine.right, mine.left))
    )


class _Chain:
    """Reads the factors of a product whose factors are products themselves."""

    def __init__(self, calls: FollowedCalls, products: dict[int, _Product], inner: set[int]) -> None:
        self._calls, self._products, self._inner = calls, products, inner
        turning = (one for one, call in calls.operator.items() if base_name(call.name) in _TURNING)
        self._turned = {maker for one in turning for maker in calls.takes(one)}
        self._sizes: list[int] = []
        self._factors: list[Labels] = []
        self._numbers: list[int] = []

    def read(self, number: int) -> Contraction | None:
        last = self._products[number]
        stack, left, right = self._label(last.stacked), self._label(last.left), self._label(last.right)
        done = self._split(number, stack, left, right)
        is_known = self._calls.located.is_known(min(self._numbers), number)
        if not is_known or not 3 <= len(self._factors) <= _MOST_FACTORS:
            return None
        kept = Labels((stack, left, right))
        rows = np.array(sorted(self._calls.row[one] for one in self._numbers), dtype=np.int64)
        return Contraction(tuple(self._factors), tuple(self._sizes), kept, done, rows, False)

    def _label(self, size: int) -> int:
        self._sizes.append(size)
        return len(self._sizes) - 1

    def _split(self, number: int, stack: int, left: int, right: int) -> Order:
        self._numbers.append(number)
        product = self._products[number]
        along = self._label(product.along)
        sides = ((left, along), (along, right))
        first, second = product.makers
        return self._part(first, stack, sides[0], False), self._part(second, stack, sides[1], product.turns)

    def _part(self, maker: int, stack: int, sides: tuple[int, int], is_turned: bool) -> Order:
        """The factors of what a product takes with these ``sides``. Of a square matrix only the calls tell whether it
        is turned."""
        if maker in self._inner:
            mine = self._products[maker]
            is_turned ^= maker in self._turned
            sizes = mine.left, mine.right
            if sizes[0] != sizes[1]:
                is_turned = (self._sizes[sides[0]], self._sizes[sides[1]]) != sizes
            return self._split(maker, stack, *(sides[::-1] if is_turned else sides))
        self._factors.append(Labels((stack, *sides)))
        return len(self._factors) - 1
