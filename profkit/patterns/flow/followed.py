"""The operators of the calls that the data flow of the located step follows, and who takes what they make."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import VIEW, base_name, operators_of
from profkit.patterns.calls import Call, distinct_calls
from profkit.patterns.flow.data_flow import LocatedFlow, calls_around, located_flow
from profkit.patterns.program import located_operators
from profkit.patterns.shapes import parse_numbers
from profkit.trace.events import Rows

_EXPANDS = frozenset(("broadcast_to", "expand", "expand_as"))


class FollowedCalls(Struct, frozen=True):
    """The operators of the flow's calls, by the call's number, and the rows of these. ``expanded`` says how many
    elements a maker's memory showed before it was expanded to so many; ``users`` are the calls that take what a maker
    made, but for views."""

    located: LocatedFlow
    operator: dict[int, Call]
    row: dict[int, int]
    expanded: dict[tuple[int, int], int]
    users: dict[int, set[int]]

    def takes(self, number: int) -> tuple[int, ...]:
        return self.located.flow.takes[number]


@derived_once
def followed_calls(facts: Facts) -> FollowedCalls | None:
    """None if the data flow or the shapes were not recorded."""
    located = located_flow(facts)
    if located is None or not facts.operators.has_shapes:
        return None
    rows = located_operators(facts)
    number = calls_around(facts, located, rows)
    rows, number = _last_of_each(facts, rows[number >= 0], number[number >= 0])
    known, kind = distinct_calls(facts, rows)
    operator = {one: known[which] for one, which in zip(number.tolist(), kind.tolist(), strict=True)}
    expanded: dict[tuple[int, int], int] = {}
    users: dict[int, set[int]] = {}
    for one, call in operator.items():
        for maker in located.flow.takes[one] if base_name(call.name) not in VIEW else ():
            users.setdefault(maker, set()).add(one)
        if base_name(call.name) in _EXPANDS and call.shapes and located.flow.takes[one]:
            key = located.flow.takes[one][0], _expanded_size(call)
            expanded[key] = min(math.prod(call.shapes[0]), expanded.get(key, key[1]))
    return FollowedCalls(located, operator, dict(zip(number.tolist(), rows.tolist(), strict=True)), expanded, users)


def _last_of_each(facts: Facts, rows: Rows, number: Rows) -> tuple[Rows, Rows]:
    """One operator of each call: the last that moves data, or the last. `x[i]` is a view and an index."""
    is_view = operators_of(facts.trace, VIEW)[rows]
    order = np.lexsort((rows, ~is_view, number))
    last = np.append(np.diff(number[order]) != 0, True)[: len(order)]
    return rows[order[last]], number[order[last]]


def _expanded_size(call: Call) -> int:
    """The elements of what `expand` returns; 0 if that is not known."""
    if base_name(call.name) == "expand_as":
        return math.prod(call.shapes[1]) if len(call.shapes) > 1 else 0
    sizes, given = parse_numbers(call.argument(1)), tuple(call.shapes[0])
    padded = (1,) * (len(sizes) - len(given)) + given
    return math.prod(have if want < 0 else want for want, have in zip(sizes, padded, strict=False)) if sizes else 0
