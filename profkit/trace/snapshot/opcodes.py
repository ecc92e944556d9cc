"""Finds the opcodes of a pickle.

A snapshot needs containers, text, numbers and references to earlier values. Only opcodes that make these are accepted.
Opcodes that would import, call or build anything are refused by name, like all others that PyTorch does not write.
Nothing is unpickled: the opcodes become columns, and no object of the file ever exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.trace.events import Int64s

MOST_TEXT_BYTES = 1 << 20
"""The longest text to read. A C++ function's name with all its template arguments has some thousands of bytes."""
TRAILING_BYTES = 8
"""Padding after the content, so that eight bytes can be read from any place in it."""

_LEVELS = 4
"""An opcode's place follows from the one before. Walking them in strides of 2**4 and filling in the places between
takes 8 ns a byte; walking one by one takes 30."""
_BLOCK_BYTES = 64 << 10
"""Bytes to walk at once, so that the strides fit the CPU's cache."""


class Malformed(Exception):
    """The message says what is wrong with the file; the reader adds the file's name."""


class Token(IntEnum):
    """What an opcode does. Those up to ``BEYOND`` push a value."""

    NONE = 0
    BOOL = 1
    INT = 2
    FLOAT = 3
    TEXT = 4
    DICT = 5
    LIST = 6
    TUPLE = 7
    GET = 8
    """The value that `PUT` stored under that number."""
    BEYOND = 9
    """A number that does not fit 64 bits."""
    MARK = 16
    SETITEMS = 17
    APPENDS = 18
    TUPLE_FROM_MARK = 19
    SETITEM = 20
    APPEND = 21
    TUPLE1 = 22
    TUPLE2 = 23
    TUPLE3 = 24
    PUT = 25
    SKIP = 26
    STOP = 27
    REFUSED = 28


@dataclass(frozen=True, slots=True)
class _Opcode:
    byte: int
    token: Token
    size_bytes: int
    """The opcode with its argument, but without the text or number whose length the argument gives."""


_OPCODES = (
    _Opcode(0x80, Token.SKIP, 2),  # PROTO
    _Opcode(0x95, Token.SKIP, 9),  # FRAME: how much to read ahead, which does not matter here
    _Opcode(ord("."), Token.STOP, 1),
    _Opcode(ord("N"), Token.NONE, 1),
    _Opcode(0x88, Token.BOOL, 1),  # NEWTRUE
    _Opcode(0x89, Token.BOOL, 1),  # NEWFALSE
    _Opcode(ord("K"), Token.INT, 2),  # BININT1
    _Opcode(ord("M"), Token.INT, 3),  # BININT2
    _Opcode(ord("J"), Token.INT, 5),  # BININT
    _Opcode(0x8A, Token.INT, 2),  # LONG1
    _Opcode(ord("G"), Token.FLOAT, 9),  # BINFLOAT
    _Opcode(0x8C, Token.TEXT, 2),  # SHORT_BINUNICODE
    _Opcode(ord("X"), Token.TEXT, 5),  # BINUNICODE
    _Opcode(ord("}"), Token.DICT, 1),
    _Opcode(ord("]"), Token.LIST, 1),
    _Opcode(ord(")"), Token.TUPLE, 1),
    _Opcode(ord("h"), Token.GET, 2),  # BINGET
    _Opcode(ord("j"), Token.GET, 5),  # LONG_BINGET
    _Opcode(ord("("), Token.MARK, 1),
    _Opcode(ord("u"), Token.SETITEMS, 1),
    _Opcode(ord("e"), Token.APPENDS, 1),
    _Opcode(ord("t"), Token.TUPLE_FROM_MARK, 1),
    _Opcode(ord("s"), Token.SETITEM, 1),
    _Opcode(ord("a"), Token.APPEND, 1),
    _Opcode(0x85, Token.TUPLE1, 1),
    _Opcode(0x86, Token.TUPLE2, 1),
    _Opcode(0x87, Token.TUPLE3, 1),
    _Opcode(ord("q"), Token.PUT, 2),  # BINPUT
    _Opcode(ord("r"), Token.PUT, 5),  # LONG_BINPUT
    _Opcode(0x94, Token.PUT, 1),  # MEMOIZE
)

_TOKENS = bytearray([Token.REFUSED]) * 256
_SIZES = bytearray(256)
for _opcode in _OPCODES:
    _TOKENS[_opcode.byte] = _opcode.token
    _SIZES[_opcode.byte] = _opcode.size_bytes


@dataclass(frozen=True, slots=True)
class Opcodes:
    """The opcodes in the first ``size_bytes`` of a piece; the next piece begins with the rest."""

    at: Int64s
    byte: NDArray[np.uint8]
    token: NDArray[np.uint8]
    size_bytes: int


def find_opcodes(content: bytes, size_bytes: int) -> Opcodes:
    """The opcodes in the first ``size_bytes`` of ``content``, up to STOP. `TRAILING_BYTES` more bytes must follow.

    Raises `Malformed` for a refused opcode and for a text that is too long.
    """
    data = np.frombuffer(content, np.uint8)
    ends = _ends(content, data, size_bytes)
    at = _reachable(ends)
    byte = data[at]
    token = np.frombuffer(_TOKENS, np.uint8)[byte]
    final = np.flatnonzero(token >= Token.STOP)
    if len(final):
        at, byte, token = at[: final[0] + 1], byte[: final[0] + 1], token[: final[0] + 1]
        if token[-1] == Token.REFUSED:
            raise Malformed(f"uses the opcode {_name(int(byte[-1]))}, which a memory snapshot has no use for")
    if len(at) and ends[at[-1]] > size_bytes:
        if ends[at[-1]] - at[-1] > MOST_TEXT_BYTES:
            raise Malformed(f"has a text of {int(ends[at[-1]] - at[-1]):,} bytes")
        at, byte, token = at[:-1], byte[:-1], token[:-1]
    return Opcodes(at, byte, token, int(ends[at[-1]]) if len(at) else 0)


def _ends(content: bytes, data: NDArray[np.uint8], size_bytes: int) -> Int64s:
    """For each byte, the end of an opcode that begins there. A refused one ends where it begins."""
    sizes = np.frombuffer(content[:size_bytes].translate(_SIZES), np.uint8)
    ends = np.add(sizes, np.arange(size_bytes))
    here = data[:size_bytes]
    short = np.flatnonzero((here == 0x8C) | (here == 0x8A))
    ends[short] += data[short + 1]
    long = np.flatnonzero(here == ord("X"))
    ends[long] += everywhere(content, "<u4")[long + 1]
    return ends


def everywhere(content: bytes, type_: str) -> NDArray[Any]:
    """For each byte, the number of that type that begins there."""
    size_bytes = np.dtype(type_).itemsize
    return np.ndarray((len(content) - size_bytes + 1,), type_, content, 0, (1,))


def _reachable(ends: Int64s) -> Int64s:
    """The places reached from the first. A place that leads to itself may be repeated at the end."""
    found, start = [], 0
    while start < len(ends):
        first = start - start % _BLOCK_BYTES
        block = _reachable_in_block(ends[first : first + _BLOCK_BYTES] - first, start - first) + first
        found.append(block)
        if ends[block[-1]] == block[-1]:
            break
        start = int(ends[block[-1]])
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _reachable_in_block(ends: Int64s, start: int) -> Int64s:
    size = len(ends)
    stride = np.empty(size + 1, np.int64)
    np.minimum(ends, size, out=stride[:size])
    stride[size] = size
    strides = [stride]
    for _ in range(_LEVELS):
        stride = np.take(stride, stride, mode="clip", out=np.empty_like(stride))
        strides.append(stride)
    further, at, places = stride.data, start, list[int]()
    while at < size:
        places.append(at)
        before, at = at, further[at]
        if at == before:
            break
    found = np.array(places, np.int64)
    for stride in strides[-2::-1]:
        finer = np.empty((len(found), 2), np.int64)
        finer[:, 0] = found
        finer[:, 1] = np.take(stride, found, mode="clip")
        found = finer.ravel()
    return found[: np.searchsorted(found, size)]


def _name(byte: int) -> str:
    """The opcode's name in the documentation of pickle."""
    import pickletools

    names = {each.code: each.name for each in pickletools.opcodes}
    return names.get(chr(byte), f"0x{byte:02x}")
