"""One tensor put side by side many times, by `torch.stack([x] * n)` or `torch.cat([x] * n)`, and who takes the result.

That the list holds one tensor, and who takes what is made of it, the data flow of the located step tells; views on the
way do not matter, as they show the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import base_name, writes_in_place
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


class CopiesOfOne(Struct, frozen=True):
    """The operators that join the copies, and for each the one that first takes the result (`NONE` if it is not among
    those asked about), which is the ``taker``. ``source`` is the tensor's shape with a dimension of size one where it
    is repeated, ``result`` that of the copies."""

    rows: Rows
    takers: Rows
    taker: Call
    source: Shape
    result: Shape
    item_bytes: int


def copies_of_one(facts: Facts, called: Rows) -> Iterator[CopiesOfOne]:
    """Those among these operators, which are in order of time. Tiles, `[a, b, a, b]`, are none."""
    calls = followed_calls(facts)
    if calls is None or not calls.located.flow.copies:
        return
    seen = first_seen(facts, called)
    for one in calls.located.flow.copies:
        shapes, users = _shapes(calls, one), calls.users.get(one.call, ())
        first = min(users, default=NONE)
        if shapes is None or first <= one.call or _writes_to(calls, first, one.call):
            continue
        taker = calls.row[first]
        rows, takers = called[seen == calls.row[one.call]], called[seen == taker]
        after = np.append(takers, NONE)[np.searchsorted(takers, rows)]
        is_near = (after >= 0) & (facts.step_of(after.clip(min=0)) == facts.step_of(rows))
        yield CopiesOfOne(rows, np.where(is_near, after, NONE), call_of(facts, taker), *shapes, one.item_bytes)


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
