"""Reader of Kineto traces: the Chrome trace JSON that ``torch.profiler`` exports, plain or gzip, of any era.

The bytes are decoded in chunks of whole events into typed structs, which become columns at once; no dict is built per
event. A chunk is cut where the bytes that separate the first events occur. The decode proves the cut: inside a string
or an inner list, what stands before it is no list of whole events. A file with such a chunk, or with anything else that
strict JSON forbids, is read the slow way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip_lib, isal_zlib

from profkit.errors import UnreadableInput
from profkit.trace.columns import ColumnBuilder
from profkit.trace.events import Recording, Trace
from profkit.trace.kineto_schema import Document, Event, encodable

MAX_BYTES = 4 << 30
"""Largest uncompressed trace that is read into memory."""

_MAX_TOLERANT_BYTES = 1 << 30
"""Largest trace that is read the slow way, which takes about ten times its size in memory."""
_CHUNK_BYTES = 512 << 10
_GZIP_BLOCK_BYTES = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_events_decoder = msgspec.json.Decoder(list[Event], float_hook=str)
_document_decoder = msgspec.json.Decoder(Document, float_hook=str)
_UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)


def read_kineto(path: Path) -> Trace:
    """Read a trace from a file.

    Raises `UnreadableInput`, naming the file and the cause, for anything that is not a whole trace.
    """
    text = _read_bytes(path)
    builder = ColumnBuilder()
    document = _decode(path, text, builder)
    if not builder.rows:
        raise UnreadableInput(path, "holds no events" if document.is_trace else "is JSON but not a profiler trace")
    trace = builder.build(_describe(document), _integer(document.base_ns) or 0)
    if not len(trace.events):
        raise UnreadableInput(path, "holds no event with a time")
    return trace


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UnreadableInput(path, "no such file") from None
    except OSError as error:
        raise UnreadableInput(path, f"cannot be read: {error.strerror or error}") from error
    if raw[:2] == _GZIP_MAGIC:
        raw = _inflate(path, raw)
    if len(raw) > MAX_BYTES:
        raise UnreadableInput(path, f"is larger than {MAX_BYTES / 2**30:g} GiB uncompressed")
    text = raw.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise UnreadableInput(path, "is empty")
    if text[:1] not in (b"{", b"["):
        raise UnreadableInput(path, "is neither JSON nor gzip")
    return text


def _inflate(path: Path, raw: bytes) -> bytes:
    """Inflate all gzip members, stopping at `MAX_BYTES`.

    The first member is taken at once, as there is rarely another; those after it in blocks, so that what is left over
    of a block is all that is copied.
    """
    parts, size, at, block = [], 0, 0, memoryview(raw)
    while raw[at : at + 2] == _GZIP_MAGIC and size <= MAX_BYTES:
        member = isal_zlib.decompressobj(wbits=31)
        while not member.eof and size <= MAX_BYTES:
            if not block:
                raise UnreadableInput(path, f"is a gzip file cut off after {size:,} bytes of content")
            try:
                parts.append(member.decompress(block, MAX_BYTES + 1 - size))
            except igzip_lib.IsalError as error:  # type: ignore[misc]  # isal's stubs declare the class as a value
                raise UnreadableInput(path, f"is a damaged gzip file: {error}") from error
            size += len(parts[-1])
            at += len(block) - len(member.unused_data)
            block = memoryview(raw)[at : at + _GZIP_BLOCK_BYTES]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decode(path: Path, text: bytes, builder: ColumnBuilder) -> Document:
    try:
        return _decode_fast(text, builder)
    except _UNDECODABLE:
        builder.clear()
        return _decode_tolerant(path, text, builder)


def _decode_fast(text: bytes, builder: ColumnBuilder) -> Document:
    """Decode chunk by chunk; raise one of `_UNDECODABLE` for anything unusual."""
    first, separator = _find_events(text)
    for start, end in _cut(text, first, separator):
        builder.add(_events_decoder.decode(b"[" + text[start:end] + b"]"))
    tail = max(first, text.rfind(separator, first) + len(separator) - 1)
    rest = text[tail:] if text[:1] == b"{" else text[tail:] + b"}"
    last = _document_decoder.decode(b'{"traceEvents":[' + rest)
    builder.add(last.events or [])
    if text[:1] == b"[":
        return last
    head = _document_decoder.decode(text[:first] + b"]}")
    if not head.is_trace:
        raise ValueError("the first list is not that of the events")
    return head.joined_with(last)


def _find_events(text: bytes) -> tuple[int, bytes]:
    """Where the first event starts, and the bytes that stand between two events."""
    array = 0 if text[:1] == b"[" else text.find(b"[", text.index(b'"traceEvents"'))
    first = text.index(b"{", array)
    gap = text[array + 1 : first]
    if gap.strip():
        raise ValueError("the first element of the event array is not an object")
    return first, b"}," + gap + b"{"


def _cut(text: bytes, first: int, separator: bytes) -> Iterator[tuple[int, int]]:
    """Ranges of whole events, all but the last separator's remainder."""
    last = text.rfind(separator, first)
    start = first
    while start < last:
        end = text.find(separator, start + _CHUNK_BYTES)
        end = last if end < 0 else end
        yield start, end + 1
        start = end + len(separator) - 1


def _decode_tolerant(path: Path, text: bytes, builder: ColumnBuilder) -> Document:
    """The slow way, for control characters in names, huge integers and other things that strict JSON forbids."""
    if len(text) > _MAX_TOLERANT_BYTES:
        raise UnreadableInput(path, f"is not strict JSON, and too large ({len(text) >> 20:,} MiB) to be read otherwise")
    try:
        value: Any = json.loads(
            text.decode("utf-8", "replace"), strict=False, parse_int=_bounded_integer, parse_float=str
        )
    except (ValueError, RecursionError) as error:
        cause = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise UnreadableInput(path, f"is not whole JSON: {cause}") from None
    if isinstance(value, list):
        value = {"traceEvents": value}
    if not isinstance(value, dict) or not isinstance(value.get("traceEvents"), list):
        raise UnreadableInput(path, "is JSON but not a profiler trace: it has no list `traceEvents`")
    raw_events = value.pop("traceEvents")
    builder.add([event for raw in raw_events if (event := Event.from_object(raw)) is not None])
    builder.note_lost(len(raw_events) - builder.seen)
    try:
        return msgspec.convert({**value, "traceEvents": []}, Document, strict=False)
    except msgspec.ValidationError:
        return Document(events=[])


def _bounded_integer(digits: str) -> int | str:
    """Numbers of thousands of digits are refused by `int`; as text they count as missing wherever they stand."""
    return int(digits) if len(digits) < 40 else digits


def _describe(document: Document) -> Recording:
    info = document.distributed if isinstance(document.distributed, dict) else {}
    devices = document.devices if isinstance(document.devices, list) else []
    return Recording(
        devices=tuple(encodable(str(device.get("name") or "")) for device in devices if isinstance(device, dict)),
        has_shapes=_flag(document.record_shapes),
        has_stacks=_flag(document.with_stack),
        has_memory=_flag(document.profile_memory),
        rank=_integer(info.get("rank")),
        ranks=_integer(info.get("world_size")),
    )


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _flag(value: object) -> bool | None:
    return None if value is None else bool(value)
