"""A window on the content of a file that only moves forwards: text before it is forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

MOST_HELD_BYTES = 64 << 20
"""The longest text before or after the events, and the longest event: more is damage."""


class Window:
    """``text`` is the part of the content that is held, ``offset`` where it begins in the content."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.text = b""
        self.offset = 0
        self.ended = False

    def extend(self, until_bytes: int = 0) -> bool:
        """Hold one more piece, or enough to hold that many bytes. False if there is no more."""
        parts, size = [self.text], len(self.text)
        for piece in self._pieces:
            parts.append(piece)
            size += len(piece)
            if size >= until_bytes:
                break
        else:
            self.ended = True
        self.text = b"".join(parts) if len(parts) > 1 else self.text
        return len(parts) > 1

    def next_piece(self) -> bytes:
        """The next piece, empty if there is no more. It is not held unless the caller does that."""
        piece = next(self._pieces, b"")
        self.ended = not piece
        return piece

    def hold(self, piece: bytes) -> None:
        self.text += piece

    def replace(self, piece: bytes, start: int) -> None:
        """Forget what is held, and hold this piece from ``start`` on instead."""
        self.offset += len(self.text) + start
        self.text = piece[start:]

    def give_back(self, offset: int, texts: Sequence[bytes]) -> None:
        """Go back to an earlier place: these texts come next, one by one, and then what is held."""
        first, *others = [*texts, self.text]
        self._pieces = chain([text for text in others if text], self._pieces)
        self.text, self.offset, self.ended = first, offset, False

    def forget(self, count: int) -> None:
        self.text = self.text[count:]
        self.offset += count

    def strip(self) -> None:
        """Forget leading blanks, and hold something after them if there is anything."""
        while True:
            blank = len(self.text) - len(self.text.lstrip())
            if blank:
                self.forget(blank)
            if self.text or not self.extend():
                return


@dataclass
class Losses:
    """The parts of the content that could not be read."""

    places: int = 0
    size_bytes: int = 0
    first_byte: int = 0
    cause: str = ""
    nothing_after: int | None = None

    def add(self, start: int, end: int, cause: str) -> None:
        """Note a range that cannot be read."""
        if not self.places:
            self.first_byte, self.cause = start, cause
        self.places += 1
        self.size_bytes += end - start

    def add_end(self, start: int, cause: str) -> None:
        """Note that nothing from there to the end can be read."""
        if not self.cause:
            self.first_byte, self.cause = start, cause
        self.nothing_after = start


def _bounded_integer(digits: str) -> int | str:
    """`int` refuses numbers of thousands of digits. As text they count as missing everywhere."""
    return int(digits) if len(digits) < 40 else digits


_scanner = json.JSONDecoder(strict=False, parse_int=_bounded_integer, parse_float=str)
_between = re.compile(r"[\s,]*")


class Unparsable(Exception):
    """No whole JSON value begins here. It is ``unfinished`` if one may begin here and end after the text."""

    def __init__(self, cause: str, unfinished: bool) -> None:
        super().__init__(cause)
        self.unfinished = unfinished


def skip_between(text: str, at: int) -> int:
    """Where the next value begins, after blanks and commas."""
    match = _between.match(text, at)
    return match.end() if match else at


def scan_value(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at a place, read tolerantly, and where it ends."""
    try:
        return _scanner.raw_decode(text, at)
    except json.JSONDecodeError as error:
        unfinished = error.pos >= len(text) - 16 or error.msg.startswith("Unterminated string")
        raise Unparsable(error.msg, unfinished) from None
    except (RecursionError, ValueError) as error:
        raise Unparsable("nested too deeply" if isinstance(error, RecursionError) else str(error), False) from None


def parse_loosely(text: bytes) -> Any:
    """A whole JSON text. Raises `Unparsable`."""
    decoded = text.decode("utf-8", "replace")
    value, end = scan_value(decoded, skip_between(decoded, 0))
    if decoded[end:].strip():
        raise Unparsable("Extra data", False)
    return value
