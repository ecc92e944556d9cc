"""Which values each container holds, worked out from the inside.

A group is what an opcode such as SETITEMS takes from the stack. All groups that hold no other are put together at
once, and taken out of the row of tokens; then those around them, and so on. There is no stack and no recursion, so
nothing can be nested too deep, and a container that holds itself is a number like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.trace.events import Bools, Int64s
from profkit.trace.snapshot.opcodes import Malformed, Token
from profkit.trace.snapshot.tokens import Memo, Tokens, covered, join

_MOST_PASSES = 100
"""A snapshot is nested seven deep. Python writes a list in parts of a thousand, which join one a pass; a piece of the
file has a dozen of them."""
_MOST_WAITING = 1 << 21
"""Tokens of containers that end in a later piece."""
_OPEN_TAIL = 8
"""Values at the end of an open list that may still be taken by an opcode of the next piece, or be its container."""

_TAKEN = np.zeros(Token.REFUSED + 1, np.int64)
_TAKEN[[Token.SETITEM, Token.APPEND, Token.TUPLE1, Token.TUPLE2, Token.TUPLE3]] = (2, 1, 1, 2, 3)
_BELOW = np.zeros(Token.REFUSED + 1, np.int64)
_BELOW[[Token.SETITEM, Token.APPEND, Token.PUT]] = 1


@dataclass(frozen=True, slots=True)
class Groups:
    """What one kind of container was given: ``items`` in order, of which the container ``container[g]`` gets the
    ``count[g]`` after those of the groups before. Those of dictionaries are key, value, key, value."""

    container: Int64s
    count: Int64s
    items: Tokens

    def __len__(self) -> int:
        return len(self.container)

    def of_items(self) -> Int64s:
        """The group of each item."""
        return np.repeat(np.arange(len(self.container)), self.count)


@dataclass(frozen=True, slots=True)
class Nested:
    """What came out of a piece, a value per pass, and the tokens that wait for more."""

    dicts: list[Groups]
    lists: list[Groups]
    tuples: list[Groups]
    waiting: Tokens
    containers: int
    """How many there are by now."""


def put_together(tokens: Tokens, memo: Memo, containers: int) -> Nested:
    """The groups that are complete. Raises `Malformed` for what is no pickle, or none of a snapshot."""
    done = Nested([], [], [], tokens, containers)
    for _ in range(_MOST_PASSES):
        operators = np.flatnonzero(tokens.kind >= Token.MARK)
        ready = _find_ready(tokens, operators)
        if not ready.any():
            break
        tokens, containers = _pass(tokens, operators, ready, memo, containers, done)
    else:
        raise Malformed("nests or splits its containers as no memory snapshot does")
    if (tokens.kind[operators] > Token.MARK).any():
        raise Malformed("takes values that are not there")
    waiting, flushed = _flush_open_lists(tokens, operators)
    if len(waiting) > _MOST_WAITING:
        raise Malformed(f"has a container of more than {_MOST_WAITING:,} values that is no list")
    return Nested(done.dicts, [*done.lists, *flushed], done.tuples, waiting, containers)


def close_all(waiting: Tokens) -> Tokens:
    """Tokens that end every open container of a file that was cut off; a key without a value is left out."""
    marks = np.flatnonzero(waiting.kind == Token.MARK)
    if len(marks) and marks[0] == 0:
        raise Malformed("is cut off before it holds anything")
    is_dict = waiting.kind[marks - 1] == Token.DICT
    kinds = np.where(is_dict, Token.SETITEMS, Token.APPENDS)[::-1].astype(np.uint8)
    if len(marks) and is_dict[-1] and (len(waiting) - 1 - marks[-1]) % 2:
        waiting = waiting.at(slice(0, -1))
    return join([waiting, Tokens(kinds, np.zeros(len(kinds), np.int64))])


def _find_ready(tokens: Tokens, operators: Int64s) -> Bools:
    """Which operators have all that they take directly before them."""
    kind = tokens.kind[operators]
    room = np.diff(operators, prepend=-1) - 1
    after_mark = np.zeros(len(kind), bool)
    after_mark[1:] = kind[:-1] == Token.MARK
    container_below = np.zeros(len(kind), bool)
    container_below[1:] = room[:-1] > 0
    from_mark = (kind >= Token.SETITEMS) & (kind <= Token.TUPLE_FROM_MARK)
    fixed = kind >= Token.SETITEM
    ready: Bools = from_mark & after_mark & (container_below | (kind == Token.TUPLE_FROM_MARK))
    return ready | (fixed & (room >= _TAKEN[kind] + _BELOW[kind]))


def _pass(
    tokens: Tokens, operators: Int64s, ready: Bools, memo: Memo, containers: int, done: Nested
) -> tuple[Tokens, int]:
    """The tokens without what is ready, which is added to ``done``."""
    at, kind = operators[ready], tokens.kind[operators[ready]]
    from_mark = kind <= Token.TUPLE_FROM_MARK
    first = at - _TAKEN[kind]
    first[from_mark] = operators[np.flatnonzero(ready)[from_mark] - 1] + 1
    takes = kind != Token.PUT
    is_tuple = (kind == Token.TUPLE_FROM_MARK) | ((kind >= Token.TUPLE1) & (kind <= Token.TUPLE3))
    new_tuples = np.cumsum(is_tuple)
    below = tokens.at(np.maximum(first - 1 - from_mark, 0))
    container = np.where(is_tuple, containers + new_tuples - 1, below.number)
    _put_into_memo(memo, tokens, at[~takes])
    for chosen, expected, into in (
        ((kind == Token.SETITEMS) | (kind == Token.SETITEM), Token.DICT, done.dicts),
        ((kind == Token.APPENDS) | (kind == Token.APPEND), Token.LIST, done.lists),
        (is_tuple, None, done.tuples),
    ):
        if not chosen.any():
            continue
        if expected is not None and (below.kind[chosen] != expected).any():
            raise Malformed("puts values into something that cannot hold them")
        into.append(_groups(tokens, container[chosen], first[chosen], at[chosen]))
    if any((groups.count % 2).any() for groups in done.dicts[-1:]):
        raise Malformed("has a key without a value")
    results, result_at = Tokens(np.full(new_tuples[-1], Token.TUPLE, np.uint8), container[is_tuple]), at[is_tuple]
    return _without(tokens, first - from_mark, at, results, result_at), containers + int(new_tuples[-1])


def _put_into_memo(memo: Memo, tokens: Tokens, puts: Int64s) -> None:
    if len(puts):
        memo.put(tokens.number[puts], tokens.at(puts - 1))


def _groups(tokens: Tokens, container: Int64s, first: Int64s, end: Int64s) -> Groups:
    inside = covered(len(tokens), first, end)
    return Groups(container, end - first, tokens.at(inside))


def _without(tokens: Tokens, first: Int64s, last: Int64s, results: Tokens, result_at: Int64s) -> Tokens:
    """The tokens without those from ``first`` to ``last``, in whose places the results stand."""
    kept = ~covered(len(tokens), first, last + 1)
    if len(result_at) == 0:
        return tokens.at(kept)
    kept[result_at] = True
    kind, number = tokens.kind.copy(), tokens.number.copy()
    kind[result_at], number[result_at] = results.kind, results.number
    return Tokens(kind[kept], number[kept])


def _flush_open_lists(tokens: Tokens, marks: Int64s) -> tuple[Tokens, list[Groups]]:
    """Without most of what the open lists hold already, and that as groups: C++ writes a list in one part, however
    long."""
    first, end = marks + 1, np.append(marks[1:], len(tokens)) - _OPEN_TAIL
    long = np.flatnonzero((tokens.kind[np.maximum(marks - 1, 0)] == Token.LIST) & (marks > 0) & (end > first))
    if len(long) == 0:
        return tokens, []
    groups = _groups(tokens, tokens.number[marks[long] - 1], first[long], end[long])
    return tokens.at(~covered(len(tokens), first[long], end[long])), [groups]
