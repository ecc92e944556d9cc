"""The values that a snapshot's opcodes push: each a kind and a number.

The number is an integer itself, a text's code, a container's number or, for a `Token.GET`, a place in the memo.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from profkit.trace.events import Bools, Int64s
from profkit.trace.snapshot.opcodes import TRAILING_BYTES, Malformed, Opcodes, Token, everywhere, find_opcodes

_TEXT_COST_BYTES = 150
"""The cost of a text in a table besides its bytes."""
_LEFT_OUT = "…".encode()
_PART = 1000
"""Python's pickler writes lists in parts of this many items (``_BATCHSIZE``)."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Columns over the values: the kind (a `Token`) and the number."""

    kind: NDArray[np.uint8]
    number: Int64s

    def __len__(self) -> int:
        return len(self.kind)

    def at(self, rows: Int64s | Bools | slice) -> Tokens:
        return Tokens(self.kind[rows], self.number[rows])


NO_TOKENS = Tokens(np.empty(0, np.uint8), np.empty(0, np.int64))


def join(parts: list[Tokens]) -> Tokens:
    if len(parts) == 1:
        return parts[0]
    return Tokens(
        np.concatenate([NO_TOKENS.kind, *(part.kind for part in parts)]),
        np.concatenate([NO_TOKENS.number, *(part.number for part in parts)]),
    )


@dataclass(frozen=True, slots=True)
class Texts:
    """The distinct texts, as bytes of the file, in the order of their codes. The first one stands for all texts after
    the room ran out. ``word`` is each text's place among the ``words`` that have a meaning, or -1."""

    words: dict[bytes, int]
    most_bytes: int
    codes: dict[bytes, int] = field(default_factory=lambda: {_LEFT_OUT: 0})
    word: array[int] = field(default_factory=lambda: array("b", [-1]))
    taken_bytes: array[int] = field(default_factory=lambda: array("q", [0]))

    @property
    def is_full(self) -> bool:
        return self.taken_bytes[0] > self.most_bytes

    def encode(self, texts: list[bytes]) -> list[int]:
        codes = self.codes
        if self.is_full:
            return [codes.get(text, 0) for text in texts]
        found = [codes.setdefault(text, len(codes)) for text in texts]
        for text in reversed(list(islice(reversed(codes), len(codes) - len(self.word)))):
            self.word.append(self.words.get(text, -1))
            self.taken_bytes[0] += len(text) + _TEXT_COST_BYTES
        return found

    def words_of(self, codes: Int64s) -> NDArray[np.int8]:
        """The word of each code."""
        return np.frombuffer(self.word, np.int8)[codes] if len(codes) else np.empty(0, np.int8)


def new_texts(words: dict[bytes, int], most_bytes: int) -> Texts:
    """Texts that begin with the words, so that these always have room."""
    texts = Texts(words, most_bytes)
    texts.encode(list(words))
    return texts


@dataclass(frozen=True, slots=True)
class Memo:
    """The values in pickle's memo, in order; a place without a value yet has the kind `Token.REFUSED`."""

    kind: array[int] = field(default_factory=lambda: array("B"))
    number: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.kind)

    def add_places(self, count: int) -> None:
        self.kind.frombytes(bytes([Token.REFUSED]) * count)
        self.number.frombytes(bytes(4 * count))

    def put(self, places: Int64s, values: Tokens) -> None:
        if (values.kind <= Token.FLOAT).any() or (values.kind >= Token.GET).any():
            raise Malformed("memoizes values that pickle does not memoize")
        np.frombuffer(self.kind, np.uint8)[places] = values.kind
        np.frombuffer(self.number, np.int32)[places] = values.number

    def resolve(self, tokens: Tokens) -> Tokens:
        """The tokens with each `Token.GET` replaced by the value."""
        gets = tokens.kind == Token.GET
        if not gets.any():
            return tokens
        places = tokens.number[gets]
        kind, number = tokens.kind.copy(), tokens.number.copy()
        kind[gets] = np.frombuffer(self.kind, np.uint8)[places]
        number[gets] = np.frombuffer(self.number, np.int32)[places]
        if (kind == Token.REFUSED).any():
            raise Malformed("refers to a value that does not exist yet")
        return Tokens(kind, number)


@dataclass(frozen=True, slots=True)
class References:
    """Lists that hold only references to earlier values, as most stacks do: for each its container, the bytes of its
    references, and how many values the memo held before it."""

    container: Int64s
    content: list[bytes]
    known: Int64s

    def decode(self, place: int) -> Int64s:
        """The places in the memo that the list refers to."""
        content = self.content[place]
        data = np.frombuffer(content, np.uint8)
        if (data[::2] == _BINGET).all():
            return self._checked(data[1::2].astype(np.int64), place)
        opcodes = find_opcodes(content + bytes(TRAILING_BYTES), len(content))
        number = np.zeros(len(opcodes.at), np.int64)
        _decode_numbers(content + bytes(TRAILING_BYTES), opcodes, number)
        return self._checked(number, place)

    def _checked(self, number: Int64s, place: int) -> Int64s:
        if (number >= self.known[place]).any():
            raise Malformed("refers to a value that does not exist yet")
        return number


def decode(content: bytes, opcodes: Opcodes, texts: Texts, memo: Memo, containers: int) -> tuple[Tokens, References]:
    """The tokens of a piece. New containers are numbered from ``containers`` on, new places after those in the memo."""
    first, last = _find_references(opcodes)
    kept = opcodes.token != Token.SKIP
    kept &= ~covered(len(kept), first, last + 1)
    number = np.zeros(len(kept), np.int64)
    rows = np.flatnonzero((opcodes.token >= Token.DICT) & (opcodes.token <= Token.TUPLE))
    number[rows] = containers + np.arange(len(rows))
    is_put = opcodes.token == Token.PUT
    known = len(memo) + np.cumsum(is_put)
    spans = zip((opcodes.at[first] + 1).tolist(), opcodes.at[last].tolist(), strict=True)
    references = References(
        number[first - 1 - is_put[first - 1]], [content[start:end] for start, end in spans], known[first]
    )
    opcodes = Opcodes(opcodes.at[kept], opcodes.byte[kept], opcodes.token[kept], opcodes.size_bytes)
    number, known = number[kept], known[kept]
    _decode_numbers(content, opcodes, number)
    _decode_texts(content, opcodes, texts, number)
    _number_values(opcodes, known, number)
    memo.add_places(int(is_put.sum()))
    kind = opcodes.token.copy()
    kind[(number == _BEYOND) & (kind == Token.INT)] = Token.BEYOND
    return Tokens(kind, number), references


NO_REFERENCES = References(np.empty(0, np.int64), [], np.empty(0, np.int64))
_BEYOND = -(2**63)
"""Stands for a number that does not fit 64 bits, and for the least one that does."""
_BINGET, _MEMOIZE, _SHORT_BINUNICODE, _LONG1, _NEWTRUE = ord("h"), 0x94, 0x8C, 0x8A, 0x88
_ARGUMENTS = (
    ("h", "u1"),
    ("j", "<u4"),
    ("K", "u1"),
    ("M", "<u2"),
    ("J", "<i4"),
    ("q", "u1"),
    ("r", "<u4"),
    ("G", "<i8"),
)


def covered(length: int, first: Int64s, end: Int64s) -> Bools:
    """Which places lie in one of the spans, which must not overlap."""
    change = np.zeros(length + 1, np.int8)
    change[first] += 1
    change[end] -= 1
    return np.cumsum(change[:-1], dtype=np.int8).view(np.bool_)


def _find_references(opcodes: Opcodes) -> tuple[Int64s, Int64s]:
    """Begin (MARK) and end (APPENDS) of the lists that hold only references and begin in this piece, except those so
    long that another part may follow."""
    token = opcodes.token
    rest = np.flatnonzero(token != Token.GET)
    is_mark = (token[rest[:-1]] == Token.MARK) & (token[rest[1:]] == Token.APPENDS)
    is_mark &= (np.diff(rest) > 1) & (np.diff(rest) <= _PART)
    chosen = np.flatnonzero(is_mark)
    first, last = rest[chosen], rest[chosen + 1]
    container = first - 1
    container -= token[np.maximum(container, 0)] == Token.PUT
    new = (container >= 0) & (token[np.maximum(container, 0)] == Token.LIST)
    return first[new], last[new]


def _decode_numbers(content: bytes, opcodes: Opcodes, number: Int64s) -> None:
    """Fill in the numbers of the opcodes that have one as their argument."""
    for byte, type_ in _ARGUMENTS:
        rows = np.flatnonzero(opcodes.byte == ord(byte))
        if len(rows):
            number[rows] = everywhere(content, type_)[opcodes.at[rows] + 1]
    number[opcodes.byte == _NEWTRUE] = 1
    rows = np.flatnonzero(opcodes.byte == _LONG1)
    starts = opcodes.at[rows] + 2
    sizes = everywhere(content, "u1")[starts - 1].astype(np.int64)
    unused_bits = 8 * (8 - np.clip(sizes, 1, 8))
    found = everywhere(content, "<i8")[starts] << unused_bits >> unused_bits
    number[rows] = np.where(sizes > 8, _BEYOND, np.where(sizes == 0, 0, found))


def _decode_texts(content: bytes, opcodes: Opcodes, texts: Texts, number: Int64s) -> None:
    rows = np.flatnonzero(opcodes.token == Token.TEXT)
    if len(rows):
        at = opcodes.at[rows]
        short = opcodes.byte[rows] == _SHORT_BINUNICODE
        starts = at + np.where(short, 2, 5)
        sizes = np.where(short, everywhere(content, "u1")[at + 1], everywhere(content, "<u4")[at + 1])
        spans = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        number[rows] = texts.encode([content[start:end] for start, end in spans])


def _number_values(opcodes: Opcodes, known: Int64s, number: Int64s) -> None:
    """Fill in the memo's places. They must be given in order, and references must be to places that exist; ``known`` is
    the length of the memo after each opcode."""
    puts = np.flatnonzero(opcodes.token == Token.PUT)
    explicit = puts[opcodes.byte[puts] != _MEMOIZE]
    if (number[explicit] != known[explicit] - 1).any():
        raise Malformed("memoizes its values out of order")
    number[puts] = known[puts] - 1
    gets = np.flatnonzero(opcodes.token == Token.GET)
    if (number[gets] >= known[gets]).any():
        raise Malformed("refers to a value that does not exist yet")
