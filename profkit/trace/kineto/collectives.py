"""What the events of a chunk say about collectives, as texts for the tables.

Few events are collectives, and decoding a dozen more fields of every event takes a tenth of the reading. So the decoder
only sees a collective's name, and the arguments around a name are looked up in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from profkit.trace.collectives import CollectiveArguments
from profkit.trace.events import NONE
from profkit.trace.kineto.codes import TextCodes, codes_of
from profkit.trace.kineto.convert import Part, integers
from profkit.trace.kineto.schema import Arguments, CollectiveFields, Event, encodable

_KEY = re.compile(rb'"Collective name"\s*:')
_MOST_BYTES = 1 << 14
"""The longest arguments of one event."""
_decoder = msgspec.json.Decoder(CollectiveFields, strict=False)


def collective_codes(
    codes: TextCodes, names: Sequence[msgspec.Raw], events: Sequence[Event], text: bytes | memoryview
) -> Part:
    """The code of each event's `CollectiveArguments`; None if no event has any. ``names`` are their ``collective``.
    ``text`` is what they were decoded from, and also holds events that are not kept."""
    if not b"".join(names):
        return None
    mine = [i for i, name in enumerate(names) if bytes(name)]
    texts = [b""] * len(names)
    arguments = [each for i in mine if (each := events[i].args) is not None]
    for i, described in zip(mine, _describe(arguments, bytes(text)), strict=True):
        texts[i] = described
    return codes_of(codes, texts)


def _describe(arguments: list[Arguments], text: bytes) -> Iterator[bytes]:
    """The text for each event. ``text`` has them in the same order, perhaps with others in between."""
    found = list(_found_in(text))
    if len(found) != len(arguments):
        by_ids = {_ids(one): one for one in found if one is not None}
        found = [by_ids.get(_ids(one)) for one in arguments]
    for given, looked_up in zip(arguments, found, strict=True):
        yield _encode(looked_up or _alone(given))


def _ids(one: Arguments | CollectiveFields) -> tuple[object, object]:
    return one.external, one.correlation


def _found_in(text: bytes) -> Iterator[CollectiveFields | None]:
    """The arguments around each name of a collective; None if they are no flat object."""
    for key in _KEY.finditer(text):
        begin = text.rfind(b"{", max(0, key.start() - _MOST_BYTES), key.start())
        end = text.find(b"}", key.end(), key.end() + _MOST_BYTES)
        yield _fields(text[begin : end + 1]) if 0 <= begin < end else None


def _fields(text: bytes) -> CollectiveFields | None:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _alone(given: Arguments) -> CollectiveFields:
    """What was decoded of the event itself."""
    raw = bytes(given.collective)
    found = _fields(raw) if raw.startswith(b"{") else None
    return found or CollectiveFields(operation=_decoded(raw))


def _decoded(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""


def _encode(one: CollectiveFields) -> bytes:
    return msgspec.json.encode(
        CollectiveArguments(
            operation=_text(one.operation),
            elements=_number(one.elements),
            dtype=_text(one.dtype),
            group=_text(one.group),
            size=_number(one.size),
            ranks=_text(one.ranks),
            description=_text(one.description),
            first_rank=_number(one.first_rank),
            rank_stride=_number(one.rank_stride),
            sequence=_number(one.sequence),
            source=_number(one.source),
            target=_number(one.target),
        )
    )


def _text(value: object) -> str:
    """A text, or a number or list as text; empty for anything else."""
    if isinstance(value, str):
        return encodable(value)
    return msgspec.json.encode(value).decode() if isinstance(value, (int, list)) else ""


def _number(value: object) -> int:
    found = integers([value])
    return NONE if found is None else max(int(found[0]), NONE)
