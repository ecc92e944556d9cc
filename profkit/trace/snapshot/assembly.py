"""Makes the snapshot from the tables of a whole file: the rows of each segment, device and setting, in order."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from profkit.core.units import format_count, pick_form
from profkit.trace.events import NONE, Int32s, Int64s
from profkit.trace.snapshot.columns import Blocks, History, Segments, Snapshot, Stacks
from profkit.trace.snapshot.opcodes import Malformed, Token
from profkit.trace.snapshot.tables import Tables
from profkit.trace.snapshot.tokens import Texts, Tokens
from profkit.trace.snapshot.words import WORDS, Word

_MOST_DICTIONARIES = 8
"""Dictionaries of settings to read: the main one, and one for each setting with several values."""
_PLURALS = {
    "frame": "frames",
    "entry of the history": "entries of the history",
    "block": "blocks",
    "segment": "segments",
}
Held = dict[int, tuple[int, int]]
"""Kind and number of each value in a dictionary, by the code of its key or by its word."""


def assemble(root: Tokens, texts: Texts, tables: Tables, notes: list[str]) -> Snapshot:
    """The snapshot that the file's root value refers to: a dictionary, or only the list of segments."""
    known, held = list(texts.codes), Held()
    if len(root) == 1 and root.kind[0] == Token.LIST:
        held = {Word.SEGMENTS: (Token.LIST, int(root.number[0]))}
    elif len(root) == 1 and root.kind[0] == Token.DICT:
        held = {WORDS.get(known[key], NONE): value for key, value in _items(int(root.number[0]), tables).items()}
    kind, settings = held.get(Word.ALLOCATOR_SETTINGS, (Token.NONE, 0))
    segments, blocks = _segments(_list_of(held, Word.SEGMENTS), tables)
    history = _history(_list_of(held, Word.DEVICE_TRACES), tables)
    if Word.SEGMENTS not in held or (root.kind[0] == Token.LIST and len(segments) == 0):
        raise Malformed("is a pickle, but holds no memory snapshot")
    left_out = [
        f"{format_count(count, what, _PLURALS[what])} could not be read and {pick_form(count, 'is', 'are')} left out"
        for what, count in tables.left_out.items()
    ]
    named = _settings(settings, known, tables) if kind == Token.DICT else {}
    blocks, history, stacks = _used_stacks(blocks, history, known, tables)
    return Snapshot(segments, blocks, history, stacks, named, (*notes, *left_out))


def _items(dictionary: int, tables: Tables) -> Held:
    others = tables.others
    rows = np.flatnonzero(others["owner"] == dictionary)
    columns = (others[name][rows].tolist() for name in ("key", "kind", "value"))
    return {key: (kind, value) for key, kind, value in zip(*columns, strict=True)}


def _list_of(held: Held, word: Word) -> int:
    """The number of the list under a key, or `NONE`."""
    kind, number = held.get(word, (Token.LIST, NONE))
    if kind != Token.LIST:
        raise Malformed(f"has something under '{word.name.lower()}' that is no list")
    return number


def _segments(segment_list: int, tables: Tables) -> tuple[Segments, Blocks]:
    found = tables.segments
    rows = np.flatnonzero((found["owner"] == segment_list) & (segment_list != NONE))
    tables.leave_out("segment", len(found) - len(rows))
    rows = rows[np.lexsort((found["address"][rows], found["device"][rows]))]
    device, address, size, stream, is_large, is_expandable, pool = (
        found[name][rows] for name in ("device", "address", "size", "stream", "is_large", "is_expandable", "pool")
    )
    segments = Segments(device, address, size, stream, is_large.astype(bool), is_expandable.astype(bool), pool)
    return segments, _blocks(segments, found["blocks"][rows], tables)


def _blocks(segments: Segments, lists: Int32s, tables: Tables) -> Blocks:
    """The blocks of the segments whose lists these are."""
    found = tables.blocks
    segment = _places(found["owner"], lists)
    rows = np.flatnonzero(segment != NONE)
    segment, size = segment[rows], found["size"][rows]
    address = _addresses(segments, segment, found["address"][rows], size)
    begin = segments.address[segment]
    inside = (address >= begin) & (address + size <= begin + segments.size_bytes[segment])
    tables.leave_out("block", len(found) - int(inside.sum()))
    order = np.flatnonzero(inside)
    order = order[np.lexsort((address[order], segment[order]))]
    rows, segment, address, size = rows[order], segment[order], address[order], size[order]
    if ((segment[1:] == segment[:-1]) & (address[1:] < address[:-1] + size[:-1])).any():
        raise Malformed("has blocks that overlap")
    rest = (found[name][rows] for name in ("requested", "state", "stack"))
    return Blocks(segment.astype(np.int32), address, size, *rest)


def _addresses(segments: Segments, segment: Int64s, address: Int64s, size: Int64s) -> Int64s:
    """The address of each block. Old releases only give those of segments, whose blocks follow each other."""
    order = np.argsort(segment, kind="stable")
    before = np.cumsum(size[order]) - size[order]
    first = np.searchsorted(segment[order], segment[order])
    follows = np.empty(len(segment), np.int64)
    follows[order] = segments.address[segment[order]] + before - before[first]
    return np.where(address == NONE, follows, address)


def _history(device_lists: int, tables: Tables) -> History:
    found, lists = tables.entries, tables.lists
    of_devices = lists["item"][(lists["owner"] == device_lists) & (device_lists != NONE)]
    device = _places(found["owner"], of_devices)
    rows = np.flatnonzero(device != NONE)
    tables.leave_out("entry of the history", len(found) - len(rows))
    rows = rows[np.argsort(device[rows], kind="stable")]
    columns = (found[name][rows] for name in ("action", "address", "size", "stream", "time", "stack"))
    return History(device[rows].astype(np.int32), *columns)


def _places(owners: Int32s, lists: Int32s) -> Int64s:
    """The place of each owner among the lists, the first if there are several, `NONE` if there is none."""
    known, first = np.unique(lists, return_index=True)
    at = np.searchsorted(known, owners)
    there = np.append(known, NONE)[at] == owners
    return np.where(there & (owners != NONE), np.append(first, NONE)[at], NONE)


def _settings(dictionary: int, known: list[bytes], tables: Tables) -> dict[str, str]:
    """The allocator's settings. One with several values becomes ``name.key``."""
    named: dict[str, str] = {}
    waiting = [("", dictionary)]
    for _ in range(_MOST_DICTIONARIES):
        if not waiting:
            break
        prefix, number = waiting.pop()
        for key, (kind, value) in _items(number, tables).items():
            name = prefix + _text(known[key])
            if kind == Token.DICT:
                waiting.append((f"{name}.", value))
            else:
                named[name] = _shown(kind, value, known)
    return named


def _shown(kind: int, value: int, known: list[bytes]) -> str:
    if kind == Token.TEXT:
        return _text(known[value])
    if kind == Token.FLOAT:
        return str(struct.unpack(">d", value.to_bytes(8, "little", signed=True))[0])
    if kind == Token.INT:
        return str(value)
    return str(bool(value)) if kind == Token.BOOL else ""


def _used_stacks(
    blocks: Blocks, history: History, known: list[bytes], tables: Tables
) -> tuple[Blocks, History, Stacks]:
    """The same blocks and history with only the stacks that they use, and the empty one."""
    used = np.zeros(len(tables.stacks), bool)
    used[0] = used[blocks.stack] = used[history.stack] = True
    code = (np.cumsum(used) - 1).astype(np.int32)
    stacks = [stack for stack, is_used in zip(tables.stacks, used.tolist(), strict=True) if is_used]
    return (
        replace(blocks, stack=code[blocks.stack]),
        replace(history, stack=code[history.stack]),
        _stacks(stacks, known, tables),
    )


def _stacks(stacks: list[bytes], known: list[bytes], tables: Tables) -> Stacks:
    columns = np.array(list(tables.frames), np.int32).reshape(-1, 3)
    files, file = np.unique(columns[:, 0], return_inverse=True)
    functions, function = np.unique(columns[:, 1], return_inverse=True)
    return Stacks(
        np.cumsum([0, *(len(stack) // 4 for stack in stacks)], dtype=np.int64),
        np.frombuffer(b"".join(stacks), np.int32),
        file.astype(np.int32),
        function.astype(np.int32),
        columns[:, 2].copy(),
        tuple(_text(known[code]) for code in files.tolist()),
        tuple(_text(known[code]) for code in functions.tolist()),
    )


def _text(text: bytes) -> str:
    """The text with lone surrogates, which pickle allows, as replacement characters, so that it can be written
    anywhere."""
    return text.decode("utf-8", "replace")
