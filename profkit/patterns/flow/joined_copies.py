"""One tensor put side by side many times, by `torch.stack([x] * n)` or `torch.cat([x] * n)`, and who takes the result.

That the list holds one tensor, and who takes what is made of it, the data flow of the located step tells; views on the
way do not matter, as they show the same memory. What works on each copy alike, element by element or by a product with
one matrix, makes copies again, and belongs to the chain. It ends where a tensor that is no copy is mixed in, or copies
are summed up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, base_name, writes_in_place
from profkit.derive.operators.operators import LARGEST_TENSOR
from profkit.patterns.calls import Call, call_of
from profkit.patterns.flow.followed import FollowedCalls, followed_calls
from profkit.patterns.shapes import parse_numbers
from profkit.patterns.step_calls import first_seen
from profkit.run.directory import JoinedCopies
from profkit.trace.events import NONE, Rows

Shape = tuple[int, ...]
_STACKING = "stack"
_LARGEST_ITEM = 16
"""Bytes of a complex number."""
_ALIKE = ELEMENTWISE - frozenset(("dropout", "feature_dropout", "native_dropout", "rrelu"))
"""What makes equal results of equal elements: not what draws random numbers."""
_WEIGHING = {"addmm": 1, "linear": 0, "matmul": 0, "mm": 0}
"""Products of rows with one matrix, and which of their tensors holds the rows; the matrix is the next one."""


class CopiesOfOne(Struct, frozen=True):
    """The operators that join the copies, and for each the one that first takes the result (`NONE` if it is not among
    those asked about), which is the ``taker``. ``source`` is the tensor's shape with a dimension of size one where it
    is repeated, ``result`` that of the copies."""

    rows: Rows
    takers: Rows
    taker: Call | None
    source: Shape
    result: Shape
    taken: Shape
    item_bytes: int
    times: int
    chain: Rows
    multiplies: bool


class _Copied(Struct, frozen=True):
    """What a call makes: its shape without dimensions of size one, and which of these the copies lie along."""

    shape: Shape
    axis: int


class _Chain(Struct, frozen=True):
    """The calls that work on each copy alike, what else takes what they or the join made, and what that is."""

    calls: list[int]
    first: int
    taken: Shape
    multiplies: bool


def copies_of_one(facts: Facts, called: Rows) -> Iterator[CopiesOfOne]:
    """Those among these operators, which are in order of time. Tiles, `[a, b, a, b]`, are none."""
    calls = followed_calls(facts)
    if calls is None or not calls.located.flow.copies:
        return
    seen = first_seen(facts, called)
    for one in calls.located.flow.copies:
        shapes = _shapes(calls, one)
        if shapes is None:
            continue
        chain = _follow(calls, one.call, _copied(*shapes))
        if chain.first < 0 and not chain.calls:
            continue
        if chain.first >= 0 and any(_writes_to(calls, chain.first, made) for made in (one.call, *chain.calls)):
            continue
        rows, takers = called[seen == calls.row[one.call]], np.full(len(called), NONE, dtype=np.int64)
        if chain.first >= 0:
            takers = called[seen == calls.row[chain.first]]
            takers = np.append(takers, NONE)[np.searchsorted(takers, rows)]
            is_near = (takers >= 0) & (facts.step_of(takers.clip(min=0)) == facts.step_of(rows))
            takers = np.where(is_near, takers, NONE)
        yield CopiesOfOne(
            rows,
            takers[: len(rows)],
            call_of(facts, calls.row[chain.first]) if chain.first >= 0 else None,
            *shapes,
            chain.taken,
            one.item_bytes,
            one.times,
            called[np.isin(seen, [calls.row[number] for number in chain.calls])],
            chain.multiplies,
        )


def _copied(source: Shape, result: Shape) -> _Copied:
    axis = next(place for place, (one, many) in enumerate(zip(source, result, strict=True)) if one != many)
    return _Copied(without_ones(result), len(without_ones(result[:axis])))


def without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _follow(calls: FollowedCalls, joined: int, copied: _Copied) -> _Chain:
    """From the join on, in order of the calls."""
    made, waiting, ends, multiplies = {joined: copied}, sorted(calls.users.get(joined, ())), list[int](), False
    while waiting:
        number = waiting.pop(0)
        result = _made_alike(calls, number, made) if number > joined else None
        if result is None:
            ends.append(number)
        elif number not in made:
            made[number] = result
            multiplies |= base_name(calls.operator[number].name) in _WEIGHING
            waiting = sorted({*waiting, *calls.users.get(number, ())})
    first = min((number for number in ends if number > joined), default=NONE)
    taken = next((made[one].shape for one in calls.takes(first) if one in made), ()) if first >= 0 else ()
    is_early = any(number <= joined for number in ends)
    return _Chain([one for one in made if one != joined], NONE if is_early else first, taken, multiplies)


def _made_alike(calls: FollowedCalls, number: int, made: dict[int, _Copied]) -> _Copied | None:
    """What a call makes of copies, if these are copies again."""
    call, makers = calls.operator[number], calls.takes(number)
    given = [tuple(shape) for shape in call.shapes if shape]
    name, known = base_name(call.name), [made.get(maker) for maker in makers]
    if name in _WEIGHING:
        place = _WEIGHING[name]
        if len(given) != len(known) or len(given) < place + 2 or sum(one is not None for one in known) != 1:
            return None
        return _product(known[place], given[place], given[place + 1], is_transposed=name == "linear")
    if name not in _ALIKE:
        return None
    copied = [one for one in known if one is not None]
    if len(copied) == len(given) < len(known):  # the others are single numbers
        known = list(copied)
    if len(given) != len(known) or any(one != copied[0] for one in copied):
        return None
    results = [shape if one is not None else _spread(shape, copied[0]) for one, shape in zip(known, given, strict=True)]
    alike = all(one is None or without_ones(shape) == one.shape for one, shape in zip(known, given, strict=True))
    return copied[0] if alike and all(shape is not None for shape in results) else None


def _spread(shape: Shape, copied: _Copied) -> Shape | None:
    """The shape of another operand, if it has nothing along the copies and makes the result no larger."""
    is_behind = copied.axis == 0 and len(shape) < len(copied.shape) and copied.shape[-len(shape) :] == shape
    return shape if is_behind or not without_ones(shape) else None


def _product(copied: _Copied | None, rows: Shape, matrix: Shape, is_transposed: bool) -> _Copied | None:
    """Of rows with a matrix. The copies must not lie along what is summed up."""
    if copied is None or len(matrix) != 2 or without_ones(rows) != copied.shape or not rows or rows[-1] == 1:
        return None
    width = matrix[0] if is_transposed else matrix[1]
    if copied.axis == len(copied.shape) - 1:
        return None
    return _Copied(copied.shape[:-1] + (width,) * (width != 1), copied.axis)


def shapes_of_joined(calls: FollowedCalls, number: int) -> tuple[Shape, Shape] | None:
    """The shapes before and after of a call that joins copies of one tensor; None if it is none."""
    one = next((one for one in calls.located.flow.copies if one.call == number), None)
    return _shapes(calls, one) if one is not None else None


def _writes_to(calls: FollowedCalls, number: int, made: int) -> bool:
    """Whether a call changes what another one made: the copies then differ."""
    return writes_in_place(calls.operator[number].name) and calls.takes(number)[0] == made


def _shapes(calls: FollowedCalls, one: JoinedCopies) -> tuple[Shape, Shape] | None:
    """The shapes before and after, with as many dimensions; None if broadcasting would not do the same."""
    call = calls.operator.get(one.call)
    dims = parse_numbers(call.argument(1)) if call is not None else ()
    if call is None or len(dims) != 1 or base_name(call.name) not in ("cat", _STACKING):
        return None
    stacks = base_name(call.name) == _STACKING
    axis, count = dims[0], len(one.shape) + stacks
    if not -count <= axis < count or not 0 < one.item_bytes <= _LARGEST_ITEM:
        return None
    axis %= count
    source = (*one.shape[:axis], 1, *one.shape[axis:]) if stacks else one.shape
    result = (*source[:axis], one.times, *source[axis + 1 :])
    is_possible = min(result) > 0 and math.prod(result) <= LARGEST_TENSOR
    return (source, result) if is_possible and source[axis] == 1 else None
