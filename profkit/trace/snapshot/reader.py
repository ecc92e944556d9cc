"""A memory snapshot from its file, without ever unpickling it.

The objects that `pickle` would build of a gigabyte take several, and its safety depends on every opcode's handler. Here
the opcodes are columns from the start. Nothing in the file is called, imported or made an object, and all that is held
is counted, so this needs no process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from profkit.core.errors import UnreadableInput
from profkit.core.units import format_bytes, format_count
from profkit.trace.containers import Content
from profkit.trace.limits import DEFAULT_LIMIT_BYTES, EMPTY_BYTES, MEMORY_LIMIT
from profkit.trace.snapshot.assembly import assemble
from profkit.trace.snapshot.columns import Snapshot, is_snapshot
from profkit.trace.snapshot.nesting import close_all, put_together
from profkit.trace.snapshot.opcodes import TRAILING_BYTES, Malformed, Token, find_opcodes
from profkit.trace.snapshot.shapes import add_rows
from profkit.trace.snapshot.tables import Tables
from profkit.trace.snapshot.tokens import (
    NO_REFERENCES,
    NO_TOKENS,
    Memo,
    References,
    Texts,
    Tokens,
    decode,
    join,
    new_texts,
)
from profkit.trace.snapshot.words import WORDS

_PIECE_BYTES = 256 << 10
"""The least content per round: enough that NumPy's time for each operation hardly counts."""
_ENTRY_BYTES = 200
"""The memory of an entry of the history, with all that is derived of it."""


def read_snapshot(path: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Snapshot:
    """Read what `torch.cuda.memory._dump_snapshot` writes, or the pickle of a `torch.cuda.memory_snapshot()`; gzip and
    zstd are unpacked. If the history does not fit into the limit, only its newest part is kept, and a note says so.

    Raises `UnreadableInput`, naming the file and the cause, for anything else.
    """
    content = Content(path)
    try:
        return _read(content, limit_bytes)
    except Malformed as error:
        raise UnreadableInput(path, str(error)) from None


def _read(content: Content, limit_bytes: int) -> Snapshot:
    room = max(0, limit_bytes - EMPTY_BYTES)
    reading = _Reading(room, new_texts(WORDS, room // 8))
    waiting, rest, ended = NO_TOKENS, b"", False
    for piece in _pieces(content):
        rest += piece
        if content.size_bytes == len(piece) and not is_snapshot(piece):
            raise Malformed("is no pickle that PyTorch could have written")
        waiting, used_bytes, ended = reading.add(rest, waiting)
        rest = rest[used_bytes:]
        if ended:
            break
    notes = [f"the file {content.damage}"] if content.damage is not None else []
    if not ended:
        if not content.damage:
            notes.append(f"the file is cut off after {format_count(content.size_bytes, 'byte')}")
        waiting = reading.put_together(close_all(waiting), NO_REFERENCES)
    if len(reading.tables.entries) > reading.most_entries or reading.cuts:
        reading.keep_newest()
        kept = f"the newest {format_count(len(reading.tables.entries), 'entry', 'entries')} of the history"
        cause = f"more need more than {format_bytes(limit_bytes)} of memory ({MEMORY_LIMIT} sets another limit)"
        notes.append(f"only {kept} were kept: {cause}")
    if reading.texts.is_full:
        notes.append("names beyond the memory limit are shown as '…'")
    return assemble(waiting, reading.texts, reading.tables, notes)


def _pieces(content: Content) -> Iterator[bytes]:
    gathered, size_bytes = list[bytes](), 0
    for piece in content:
        gathered.append(piece)
        size_bytes += len(piece)
        if size_bytes >= _PIECE_BYTES:
            yield b"".join(gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield b"".join(gathered)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is known of a file so far. ``room_bytes`` is what the tables may take together."""

    room_bytes: int
    texts: Texts
    memo: Memo = field(default_factory=Memo)
    tables: Tables = field(default_factory=Tables)
    cuts: list[int] = field(default_factory=list)
    """How many entries were left each time that the oldest were dropped."""

    @property
    def most_entries(self) -> int:
        return self.room_bytes // _ENTRY_BYTES

    def add(self, content: bytes, waiting: Tokens) -> tuple[Tokens, int, bool]:
        """The tokens that wait after this piece, how much of it was used, and whether the value is complete."""
        padded = content + bytes(TRAILING_BYTES)
        opcodes = find_opcodes(padded, len(content))
        tokens, references = decode(padded, opcodes, self.texts, self.memo, len(self.tables.containers))
        ended = len(tokens) > 0 and bool(tokens.kind[-1] == Token.STOP)
        if ended:
            tokens = tokens.at(slice(0, -1))
        opened = int(((tokens.kind >= Token.DICT) & (tokens.kind <= Token.TUPLE)).sum())
        self.tables.add_containers(opened)
        return self.put_together(join([waiting, tokens]), references), opcodes.size_bytes, ended

    def put_together(self, tokens: Tokens, references: References) -> Tokens:
        """Read what is complete among the tokens; the rest."""
        nested = put_together(tokens, self.memo, len(self.tables.containers))
        add_rows(nested, references, self.texts, self.memo, self.tables)
        if len(self.tables.entries) > self.most_entries * 5 // 4:
            self.keep_newest()
        if self.tables.taken_bytes + self.texts.taken_bytes[0] + 5 * len(self.memo) > self.room_bytes:
            limit = format_bytes(self.room_bytes + EMPTY_BYTES)
            raise Malformed(f"needs more than {limit} of memory ({MEMORY_LIMIT} sets another limit)")
        return nested.waiting

    def keep_newest(self) -> None:
        """Drop the oldest entries of the history beyond those that fit."""
        self.tables.keep_newest_entries(self.most_entries)
        self.cuts.append(len(self.tables.entries))
