"""Finds the values in each container, from the inside out.

A group is the values that an opcode such as SETITEMS takes from the stack. Each pass collects all groups that contain
no other and removes them from the row of tokens, then come the groups around them. There is no stack and no recursion,
so nothing can be nested too deep, and a container that holds itself is a number like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.trace.events import Bools, Int64s
from profkit.trace.snapshot.opcodes import Malformed, Token
from profkit.trace.snapshot.tokens import Memo, Tokens, covered, join

_MOST_PASSES = 32
"""A snapshot is nested seven deep, and a level takes up to three passes: its parts, a last single item, its number."""
_MOST_WAITING = 1 << 17
"""The most tokens that may wait for a later piece to end their containers."""
_OPEN_TAIL = 8
"""Values to keep at the end of an open list: an opcode of the next piece may take them, or one may be its container."""

_TAKEN = np.zeros(Token.REFUSED + 1, np.int64)
_TAKEN[[Token.SETITEM, Token.APPEND, Token.TUPLE1, Token.TUPLE2, Token.TUPLE3]] = (2, 1, 1, 2, 3)
_BELOW = np.zeros(Token.REFUSED + 1, np.int64)
_BELOW[[Token.SETITEM, Token.APPEND, Token.PUT]] = 1


@dataclass(frozen=True, slots=True)
class Groups:
    """The contents of one kind of container: ``items`` in order, of which ``container[g]`` gets the ``count[g]`` that
    follow those of earlier groups. The items of dictionaries alternate between keys and values."""

    container: Int64s
    count: Int64s
    items: Tokens

    def __len__(self) -> int:
        return len(self.container)


@dataclass(frozen=True, slots=True)
class Nested:
    """The groups of a piece, one value per pass, and the tokens that wait for the next piece."""

    dicts: list[Groups]
    lists: list[Groups]
    tuples: list[Groups]
    waiting: Tokens
    containers: int
    """The number of containers so far."""


def put_together(tokens: Tokens, memo: Memo, containers: int) -> Nested:
    """The complete groups. Raises `Malformed` for anything but the pickle of a snapshot."""
    done = Nested([], [], [], tokens, containers)
    for _ in range(_MOST_PASSES):
        operators = np.flatnonzero(tokens.kind >= Token.MARK)
        left, containers = _pass(tokens, operators, memo, containers, done)
        if left is tokens:
            break
        tokens = left
    else:
        raise Malformed("nests or splits its containers as no memory snapshot does")
    if any((groups.count % 2).any() for groups in done.dicts):
        raise Malformed("has a key without a value")
    if (tokens.kind[operators] > Token.MARK).any():
        raise Malformed("takes values that are not there")
    waiting, flushed = _flush_open_lists(tokens, operators)
    if len(waiting) > _MOST_WAITING:
        raise Malformed(f"has a container of more than {_MOST_WAITING:,} values that is no list")
    return Nested(done.dicts, [*done.lists, *flushed], done.tuples, waiting, containers)


def close_all(waiting: Tokens) -> Tokens:
    """End every open container of a file that was cut off. A last key without a value is dropped, unless a list stands
    before it: then it is that list's only item."""
    marks = np.flatnonzero(waiting.kind == Token.MARK).tolist()
    ends = [*marks[1:], len(waiting)]
    kinds: list[int] = []
    for mark, end in reversed(list(zip(marks, ends, strict=False))):
        is_dict = mark > 0 and waiting.kind[mark - 1] == Token.DICT
        if is_dict and (end - mark - 1) % 2:
            if end - mark > 2 and waiting.kind[end - 2] == Token.LIST:
                kinds.append(Token.APPEND)
            elif end == len(waiting):
                waiting = waiting.at(slice(0, -1))
        kinds.append(Token.SETITEMS if is_dict else Token.APPENDS)
    return join([waiting, Tokens(np.array(kinds, np.uint8), np.zeros(len(kinds), np.int64))])


def _find_ready(tokens: Tokens, operators: Int64s) -> tuple[Bools, Int64s]:
    """The operators with all their values directly before them, and the place of each one's container.

    Parts of one container follow each other, so they share the container of the first.
    """
    kind = tokens.kind[operators]
    room = np.diff(operators, prepend=-1) - 1
    ready = (kind >= Token.SETITEM) & (room >= _TAKEN[kind] + _BELOW[kind])
    container_at = operators - _TAKEN[kind] - 1
    ends = np.flatnonzero((kind >= Token.SETITEMS) & (kind <= Token.TUPLE_FROM_MARK))
    ends = ends[kind[np.maximum(ends - 1, 0)] == Token.MARK]
    if len(ends):
        is_tuple = kind[ends] == Token.TUPLE_FROM_MARK
        goes_on = np.zeros(len(ends), bool)
        goes_on[1:] = (room[ends[1:] - 1] == 0) & (ends[1:] - ends[:-1] == 2) & ~is_tuple[1:] & ~is_tuple[:-1]
        firsts = ends[~goes_on]
        part_of = np.cumsum(~goes_on) - 1
        ready[ends] = ((room[firsts - 1] > 0) | is_tuple[~goes_on])[part_of]
        container_at[ends] = (operators[firsts - 1] - 1)[part_of]
    return ready, container_at


def _pass(tokens: Tokens, operators: Int64s, memo: Memo, containers: int, done: Nested) -> tuple[Tokens, int]:
    """Move the groups that are ready to ``done``, and return the other tokens."""
    ready, container_at = _find_ready(tokens, operators)
    at, kind = operators[ready], tokens.kind[operators[ready]]
    if len(at) == 0:
        return tokens, containers
    from_mark = kind <= Token.TUPLE_FROM_MARK
    first = at - _TAKEN[kind]
    first[from_mark] = operators[np.flatnonzero(ready)[from_mark] - 1] + 1
    is_tuple = (kind == Token.TUPLE_FROM_MARK) | ((kind >= Token.TUPLE1) & (kind <= Token.TUPLE3))
    tuples = np.cumsum(is_tuple)
    holder = tokens.at(np.maximum(container_at[ready], 0))
    container = np.where(is_tuple, containers + tuples - 1, holder.number)
    puts = at[kind == Token.PUT]
    memo.put(tokens.number[puts], tokens.at(puts - 1))
    for chosen, expected, into in (
        ((kind == Token.SETITEMS) | (kind == Token.SETITEM), Token.DICT, done.dicts),
        ((kind == Token.APPENDS) | (kind == Token.APPEND), Token.LIST, done.lists),
        (is_tuple, None, done.tuples),
    ):
        if not chosen.any():
            continue
        if expected is not None and (holder.kind[chosen] != expected).any():
            raise Malformed("puts values into something that cannot hold them")
        into.append(_groups(tokens, container[chosen], first[chosen], at[chosen]))
    results = Tokens(np.full(tuples[-1], Token.TUPLE, np.uint8), container[is_tuple])
    return _without(tokens, first - from_mark, at, results, at[is_tuple]), containers + int(tuples[-1])


def _groups(tokens: Tokens, container: Int64s, first: Int64s, end: Int64s) -> Groups:
    inside = covered(len(tokens), first, end)
    return Groups(container, end - first, tokens.at(inside))


def _without(tokens: Tokens, first: Int64s, last: Int64s, results: Tokens, result_at: Int64s) -> Tokens:
    """The tokens with each span from ``first`` to ``last`` replaced by its result."""
    kept = ~covered(len(tokens), first, last + 1)
    if len(result_at) == 0:
        return tokens.at(kept)
    kept[result_at] = True
    kind, number = tokens.kind.copy(), tokens.number.copy()
    kind[result_at], number[result_at] = results.kind, results.number
    return Tokens(kind[kept], number[kept])


def _flush_open_lists(tokens: Tokens, marks: Int64s) -> tuple[Tokens, list[Groups]]:
    """Move most values of the open lists to groups: C++ writes a list in one part, however long."""
    first, end = marks + 1, np.append(marks[1:], len(tokens)) - _OPEN_TAIL
    long = np.flatnonzero((tokens.kind[np.maximum(marks - 1, 0)] == Token.LIST) & (marks > 0) & (end > first))
    if len(long) == 0:
        return tokens, []
    groups = _groups(tokens, tokens.number[marks[long] - 1], first[long], end[long])
    return tokens.at(~covered(len(tokens), first[long], end[long])), [groups]
