"""Finds the events in the text of a trace and hands them on in chunks of whole events.

A chunk is cut where the bytes that separate the first two events occur again. Decoding proves the cut: inside a string
or an inner list, the text before it would be no list of whole events. If a chunk does not decode, its events are read
one by one with Python's tolerant parser, which accepts control characters in names, huge integers and the like. What it
rejects is left out and noted, and reading continues at the next separator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec

from profkit.core.forks import processes_at_hand
from profkit.trace.kineto.chunks import Chunk
from profkit.trace.kineto.columns import ColumnBuilder
from profkit.trace.kineto.decoding import UNDECODABLE, Decoders, Undecoded
from profkit.trace.kineto.schema import Document, Event
from profkit.trace.kineto.text_window import (
    MOST_HELD_BYTES,
    Losses,
    Unparsable,
    Window,
    parse_loosely,
    scan_value,
    skip_between,
)

_document_decoder = msgspec.json.Decoder(Document, float_hook=str)
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SEPARATOR = re.compile(r"\}\s*,\s*\{")
_ALONE_BYTES = 2 << 20
"""The first process reads this much alone: less is read before others would have started."""
_MOST_ARRAYS = 16
"""At most so many lists named ``traceEvents`` are tried as the list of events."""
_LONGEST_GAP_BYTES = 1 << 10
_OPEN, _LIST = b'{"traceEvents":[', b"["


class NoEvents(Exception):
    """The text is not a trace; the message says why."""


class EventText:
    """Reads the events of one text into a `ColumnBuilder`, and the document around them.

    If the text is known to be large, other processes read parts of it from the beginning.
    """

    def __init__(self, window: Window, builder: ColumnBuilder, is_large: bool = False) -> None:
        self._window = window
        self._alone_bytes = 0 if is_large else _ALONE_BYTES
        self._builder = builder
        self._decoders: Decoders | None = None
        self._may_share = True
        self._separator = b""
        self._is_list = False
        self.losses = Losses()

    def read(self) -> Document:
        """What is around the events. Raises `NoEvents` if there is no list of events."""
        head = self._enter()
        self._learn_separator()
        with ExitStack() as at_the_end:
            tail = None
            while tail is None:
                if self._may_share and self._window.offset >= self._alone_bytes:
                    self._share(at_the_end)
                tail = None if self._read_piece() or self._is_given_back() else self._read_chunk()
        return head.joined_with(tail)

    def _share(self, at_the_end: ExitStack) -> None:
        """From here on, have other processes decode as well, if possible."""
        self._may_share = False
        others = processes_at_hand() - 1
        if others and self._builder.cutoff_ns is None:
            self._decoders = at_the_end.enter_context(Decoders(self._builder.decoder, others))
            self._builder.tables += others

    def _is_given_back(self) -> bool:
        """Append what was handed over; True if some of it does not decode and must be read again."""
        return self._decoders is not None and not self._append(self._decoders.finish())

    def _append(self, chunks: Iterator[Chunk]) -> bool:
        """Append what others decoded. If they are done, False, with the window back where their last chunk ended."""
        assert self._decoders is not None
        rest = None
        try:
            for chunk in chunks:
                self._builder.append(chunk)
                if self._builder.cutoff_ns is not None:  # codes were given anew, and the others have the old ones
                    break
            else:
                return True
            rest = self._decoders.give_back()
        except Undecoded as undecoded:
            rest = undecoded
        self._decoders, self._builder.tables = None, 1
        if rest is not None:
            between = self._separator[1:-1]
            self._window.give_back(rest.offset, [text + between for text in rest.texts])
        return False

    def _read_piece(self) -> bool:
        """Read what is held and the next piece up to its last separator: the common case, with the least copying.

        False if that is not possible; the piece is then held.
        """
        window = self._window
        piece = b"" if window.ended or self._separator in window.text else window.next_piece()
        cut = piece.rfind(self._separator) + 1
        if cut and self._decoders is not None:
            text, offset = (window.text, memoryview(piece)[:cut]), window.offset
            window.replace(piece, cut + len(self._separator) - 2)
            self._append(self._decoders.decode(text, offset))
            return True
        if cut:
            try:
                self._builder.decode(b"".join((b"[", window.text, memoryview(piece)[:cut], b"]")))
            except UNDECODABLE:
                cut = 0
        if cut:
            window.replace(piece, cut + len(self._separator) - 2)
            return True
        if piece:
            window.hold(piece)
        return False

    def _enter(self) -> Document:
        """Move the window past the bracket that opens the list of events; return the document before it."""
        self._is_list = self._window.text.startswith(_LIST)
        opening = find_opening(self._window)
        if opening is None:
            return self._enter_damaged()
        head, begin = opening
        self._window.forget(begin)
        return head

    def _enter_damaged(self) -> Document:
        window = self._window
        found = _ARRAY.search(window.text)
        if found is None:
            raise NoEvents(_why_no_trace(window.text))
        try:
            parse_loosely(window.text)
        except Unparsable as cause:
            self.losses.add(window.offset, window.offset + found.start(), str(cause))
        else:  # the list is deep inside another value
            raise NoEvents(_why_no_trace(window.text))
        window.forget(found.end())
        return Document(events=[])

    def _learn_separator(self) -> None:
        """The bytes from the end of the first event to the beginning of the second, both brackets included."""
        found, more = None, True
        while found is None and more:
            text = self._window.text[:MOST_HELD_BYTES].decode("latin-1")
            try:
                _, end = scan_value(text, skip_between(text, 0))
            except Unparsable as error:
                unfinished = error.unfinished
            else:
                found = _SEPARATOR.match(text, end - 1)
                unfinished = end > len(text) - _LONGEST_GAP_BYTES
            more = unfinished and len(text) < MOST_HELD_BYTES and self._window.extend(2 * len(text))
        found = found or _SEPARATOR.search(text)
        self._separator = found[0].encode("latin-1") if found else b"},{"

    def _read_chunk(self) -> Document | None:
        """Read up to the last separator in the window, or to the end; then return the document after the events."""
        window = self._window
        cut = window.text.rfind(self._separator) + 1
        if cut > 0:
            try:
                self._builder.decode(b"".join((b"[", memoryview(window.text)[:cut], b"]")))
            except UNDECODABLE:
                return self._read_singly(cut)
            window.forget(cut + len(self._separator) - 2)
        if window.ended:
            return self._read_last()
        if cut > 0:
            return None  # `_read_piece` reads the next piece
        window.extend(min(2 * len(window.text), MOST_HELD_BYTES))
        if len(window.text) >= MOST_HELD_BYTES:
            return self._read_singly(len(window.text))
        return None

    def _read_last(self) -> Document | None:
        """Read from an event to the end of the file at once, or event by event if that fails."""
        text = self._window.text
        try:
            last = _document_decoder.decode(_OPEN + text + (b"}" if self._is_list else b""))
        except UNDECODABLE:
            return self._read_singly(len(text))
        self._builder.add(last.events or [], text)
        return last

    def _read_singly(self, least: int) -> Document | None:
        """Read at least this much of the window event by event; return the document after the events once they end."""
        window = self._window
        text = window.text.decode("latin-1")  # one character per byte, so that places are bytes
        events: list[Any] = []
        at = skip_between(text, 0)
        while at < min(least, len(text)) and text[at] != "]":
            try:
                value, end = scan_value(text, at)
            except Unparsable as error:
                if error.unfinished and not window.ended and len(text) < MOST_HELD_BYTES:
                    break
                end = self._after_damage(text, at, error)
            else:
                events.append(value if text[at:end].isascii() else parse_loosely(window.text[at:end]))
            at = skip_between(text, end)
        self._add_loose(events)
        window.forget(at)
        if text[at : at + 1] == "]":
            return self._leave()
        if window.ended and at >= len(text):
            if self.losses.nothing_after is None:
                self.losses.add_end(window.offset, "the list of events does not end")
            return Document()
        window.extend(0 if at else min(2 * len(text), MOST_HELD_BYTES))
        return None

    def _after_damage(self, text: str, at: int, error: Unparsable) -> int:
        """Where the next event begins, or else how much of the text is unusable."""
        window, separator = self._window, self._separator.decode("latin-1")
        found = text.find(separator, at + 1)
        if found < 0 and window.ended:
            self.losses.add_end(window.offset + at, str(error))
            return len(text)
        end = found + len(separator) - 1 if found >= 0 else max(len(text) - len(separator), at + 1)
        self.losses.add(window.offset + at, window.offset + end, str(error))
        return end

    def _add_loose(self, values: list[Any]) -> None:
        events = [event for value in values if (event := Event.from_object(value)) is not None]
        self._builder.add(events)
        self._builder.note_lost(len(values) - len(events))

    def _leave(self) -> Document | None:
        """The document after the bracket that ends the events; None if the bracket was damage and events follow."""
        window = self._window
        while len(window.text) < MOST_HELD_BYTES and window.extend(MOST_HELD_BYTES):
            pass
        rest = window.text[1:]
        tail = _document((_OPEN + b"]" + rest) if not self._is_list else _OPEN + b"]}" + rest)
        if tail is not None:
            self._builder.add(tail.events or [], rest)
            return tail
        again, cause = window.text.find(self._separator), "the text behind the events is not whole"
        if again < 0:
            self.losses.add_end(window.offset, cause)
            return Document()
        end = again + len(self._separator) - 1
        self.losses.add(window.offset, window.offset + end, cause)
        window.forget(end)
        return None


def find_opening(window: Window) -> tuple[Document, int] | None:
    """The document before the events, and where the first event begins in the window, which is extended as needed; None
    if that document is not whole."""
    if window.text.startswith(_LIST):
        return Document(events=[]), len(_LIST)
    searched, tried = 0, 0
    while True:
        for found in _ARRAY.finditer(window.text, searched):
            head = _document(window.text[: found.end()] + b"]}")
            if head is not None and head.is_trace:
                return head, found.end()
            tried += 1
        searched = max(0, len(window.text) - _LONGEST_GAP_BYTES)
        if tried >= _MOST_ARRAYS or len(window.text) > MOST_HELD_BYTES or not window.extend():
            return None


def _document(text: bytes) -> Document | None:
    """The top level of a trace, read as tolerantly as needed; None if it is not whole."""
    try:
        return _document_decoder.decode(text)
    except UNDECODABLE:
        pass
    try:
        value = parse_loosely(text)
    except Unparsable:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("traceEvents"), list):
        return None
    try:
        return Document.from_object(value)
    except msgspec.ValidationError:
        return Document(events=[])


def _why_no_trace(text: bytes) -> str:
    """Why a text without a list of events is no trace."""
    try:
        parse_loosely(text)
    except Unparsable as cause:
        return f"is not whole JSON: {cause}"
    return "is JSON but not a profiler trace: it has no list `traceEvents`"
