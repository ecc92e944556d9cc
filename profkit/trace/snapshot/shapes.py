"""Turns the containers of a piece into rows: frames, stacks, entries of the history, blocks and segments.

A container is recognised by its keys, not by its place, and makes one row however often it is referred to.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from profkit.trace.events import NONE, Bools, Int64s
from profkit.trace.snapshot.columns import Action, State
from profkit.trace.snapshot.nesting import Groups, Nested
from profkit.trace.snapshot.opcodes import Malformed, Token
from profkit.trace.snapshot.tables import Shape, Tables
from profkit.trace.snapshot.tokens import Memo, References, Texts, Tokens, join
from profkit.trace.snapshot.words import FIRST_ACTION, FIRST_STATE, Word

_MOST_BYTES = 1 << 50
"""No device has a petabyte, and sums of thousands of such sizes fit into 64 bits."""
_MOST_ADDRESS = 1 << 62
_MOST_TIME_US = (1 << 63) // 1000 - 1
_MOST_DEVICES = 1 << 12
_MOST_LISTS = 1 << 16
"""Nested lists to keep: a history per device."""
_MOST_OTHERS = 1 << 16
"""Other items to keep, such as settings."""
_MOST_POOLS = 1 << 16
_MOST_STACK_BYTES = 1 << 20
_STACK_BYTES = 150
"""The cost of a stack in its table besides its frames."""

_SHAPE_BY_KEY = (
    (Word.FILENAME, Shape.FRAME),
    (Word.REAL_SIZE, Shape.ALLOCATION),
    (Word.ACTION, Shape.ENTRY),
    (Word.STATE, Shape.BLOCK),
    (Word.BLOCKS, Shape.SEGMENT),
)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The contents of the dictionaries of one shape. ``container`` has them in the order of the file. The other columns
    are over their values: the dictionary's place in ``container``, the key as a `Word`, and the value."""

    container: Int64s
    row: Int64s
    word: NDArray[np.int8]
    value: Tokens

    def __len__(self) -> int:
        return len(self.container)

    def find(self, word: Word, kind: Token) -> tuple[Int64s, Bools]:
        """Each dictionary's number under a key, and whether it has one of the kind."""
        rows = np.flatnonzero(self.word == word)
        rows = rows[self.value.kind[rows] == kind]
        number, found = np.zeros(len(self), np.int64), np.zeros(len(self), bool)
        number[self.row[rows]] = self.value.number[rows]
        found[self.row[rows]] = True
        return number, found

    def has(self, word: Word) -> Bools:
        found = np.zeros(len(self), bool)
        found[self.row[self.word == word]] = True
        return found

    def integers(self, word: Word, least: int, most: int) -> tuple[Int64s, Bools]:
        """Each dictionary's integer under a key, and whether it has one within the bounds."""
        number, found = self.find(word, Token.INT)
        return number, found & (number >= least) & (number <= most)

    def words(self, word: Word, texts: Texts) -> Int64s:
        """The word of each dictionary's text under a key, -1 for any other."""
        number, found = self.find(word, Token.TEXT)
        meant = np.full(len(self), -1, np.int64)
        meant[found] = texts.words_of(number[found])
        return meant


def add_rows(nested: Nested, references: References, texts: Texts, memo: Memo, tables: Tables) -> None:
    """Add the rows of the piece's containers to the tables, each shape after those that it is made of."""
    tables.add_containers(nested.containers - len(tables.containers))
    by_shape = _sort_by_shape(_join(nested.dicts, memo), texts, tables)
    _add_frames(by_shape[Shape.FRAME], tables)
    new = _new_references(references, tables)
    lists = _join([*_groups_of(references, list(new.values())), *nested.lists], memo)
    _add_stacks(lists, tables)
    _add_references(references, new, tables)
    _add_pairs(_join(nested.tuples, memo), tables)
    _add_allocations(by_shape[Shape.ALLOCATION], lists, tables)
    _add_entries(by_shape[Shape.ENTRY], texts, tables)
    _add_blocks(by_shape[Shape.BLOCK], texts, tables)
    _add_segments(by_shape[Shape.SEGMENT], texts, tables)
    _set_owners(lists, tables)


def _join(groups: list[Groups], memo: Memo) -> Groups:
    items = memo.resolve(join([each.items for each in groups]))
    empty = np.empty(0, np.int64)
    return Groups(
        np.concatenate([empty, *(each.container for each in groups)]),
        np.concatenate([empty, *(each.count for each in groups)]),
        items,
    )


def _sort_by_shape(groups: Groups, texts: Texts, tables: Tables) -> dict[Shape, _Fields]:
    key, value = groups.items.at(slice(0, None, 2)), groups.items.at(slice(1, None, 2))
    group = np.repeat(np.arange(len(groups)), groups.count // 2)
    word = np.full(len(key), -1, np.int8)
    is_text = key.kind == Token.TEXT
    word[is_text] = texts.words_of(key.number[is_text])
    shape = np.full(len(groups), Shape.OTHER, np.uint8)
    for telling, its_shape in _SHAPE_BY_KEY:
        shape[group[word == telling]] = its_shape
    fields = {}
    for _, its_shape in _SHAPE_BY_KEY:
        chosen = np.flatnonzero(shape == its_shape)
        order = np.argsort(groups.container[chosen], kind="stable")
        row = np.empty(len(groups), np.int64)
        row[chosen[order]] = np.arange(len(chosen))
        pairs = (shape[group] == its_shape) & (word >= 0)
        fields[its_shape] = _Fields(groups.container[chosen[order]], row[group[pairs]], word[pairs], value.at(pairs))
    others = np.flatnonzero((shape[group] == Shape.OTHER) & is_text)
    _add_others(groups.container[group[others]], key.at(others), value.at(others), tables)
    return fields


def _add_others(owner: Int64s, key: Tokens, value: Tokens, tables: Tables) -> None:
    """Keep the newest: the dictionary around everything else ends last."""
    tables.others.add(owner=owner, key=key.number, kind=value.kind, value=value.number)
    if len(tables.others) > 2 * _MOST_OTHERS:
        tables.others.keep(np.arange(len(tables.others) - _MOST_OTHERS, len(tables.others)))


def _add_frames(fields: _Fields, tables: Tables) -> None:
    name, has_name = fields.find(Word.NAME, Token.TEXT)
    file, has_file = fields.find(Word.FILENAME, Token.TEXT)
    line, has_line = fields.integers(Word.LINE, 0, 2**31 - 1)
    line[~has_line] = 0
    whole = has_name & has_file
    tables.leave_out("frame", len(fields) - int(whole.sum()))
    codes = tables.frames
    frames = zip(file[whole].tolist(), name[whole].tolist(), line[whole].tolist(), strict=True)
    rows = [codes.setdefault(frame, len(codes)) for frame in frames]
    tables.set_shape(fields.container[whole], Shape.FRAME, rows)


def _new_references(references: References, tables: Tables) -> dict[bytes, int]:
    """The first list of each new content. Equal references make equal stacks, as a place in the memo never changes its
    value."""
    places: dict[bytes, int] = {}
    for place, content in enumerate(references.content):
        if content not in tables.referred:
            places.setdefault(content, place)
    return places


def _groups_of(references: References, places: list[int]) -> list[Groups]:
    if not places:
        return []
    numbers = [references.decode(place) for place in places]
    number = np.concatenate(numbers)
    items = Tokens(np.full(len(number), Token.GET, np.uint8), number)
    return [Groups(references.container[places], np.array([len(each) for each in numbers], np.int64), items)]


def _add_references(references: References, new: dict[bytes, int], tables: Tables) -> None:
    """Give all lists of one content the stack that the first one was found to be, if it is one."""
    if not references.content:
        return
    rows = tables.rows_of(references.container[list(new.values())], Shape.STACK, NONE).tolist()
    tables.referred.update(zip(new, rows, strict=True))
    tables.stack_bytes[0] += sum(len(content) + _STACK_BYTES for content in new)
    row = np.array([tables.referred[content] for content in references.content], np.int64)
    is_stack = row != NONE
    tables.set_shape(references.container[is_stack], Shape.STACK, row[is_stack])


def _add_stacks(lists: Groups, tables: Tables) -> None:
    """Add lists of frames. A list that continues is extended; items other than frames are skipped."""
    items = lists.items
    is_frame = tables.shapes_of(items, items.kind == Token.DICT) == Shape.FRAME
    before = np.append(0, np.cumsum(is_frame))
    ends = np.cumsum(lists.count)
    first, last = 4 * before[ends - lists.count], 4 * before[ends]
    chosen = np.flatnonzero(last > first)
    data = tables.containers["row"][items.number[is_frame]].tobytes()
    container, stacks = lists.container[chosen], tables.stacks
    spans = zip(first[chosen].tolist(), last[chosen].tolist(), strict=True)
    frames = [data[start:end] for start, end in spans]
    continued = (tables.containers["shape"][container] == Shape.STACK) | _repeats(container)
    if continued.any():
        _continue_stacks(frames, container, tables)
    known = len(stacks)
    rows = [stacks.setdefault(each, len(stacks)) for each in frames]
    tables.stack_bytes[0] += sum(len(each) + _STACK_BYTES for each in islice(reversed(stacks), len(stacks) - known))
    tables.set_shape(container, Shape.STACK, rows)


def _repeats(container: Int64s) -> Bools:
    """Which containers came before."""
    again = np.ones(len(container), bool)
    again[np.unique(container, return_index=True)[1]] = False
    return again


def _continue_stacks(frames: list[bytes], container: Int64s, tables: Tables) -> None:
    """Put the frames that a list had already before its new ones."""
    codes = list(tables.stacks)
    rows = tables.rows_of(container, Shape.STACK, 0).tolist()
    so_far = {number: codes[row] for number, row in zip(container.tolist(), rows, strict=True)}
    for place, number in enumerate(container.tolist()):
        so_far[number] = frames[place] = so_far[number] + frames[place]
        if len(frames[place]) > _MOST_STACK_BYTES:
            raise Malformed("has a stack of more frames than Python allows")


def _add_pairs(tuples: Groups, tables: Tables) -> None:
    """Add tuples of two integers; neighbours are often equal."""
    two = tuples.count == 2
    inside = np.repeat(two, tuples.count)
    kind, number = tuples.items.kind[inside].reshape(-1, 2), tuples.items.number[inside].reshape(-1, 2)
    whole = (kind == Token.INT).all(axis=1)
    container, number = tuples.container[two][whole], number[whole]
    if len(container) == 0:
        return
    new = np.append(True, (number[1:] != number[:-1]).any(axis=1))
    codes = tables.pairs
    found = [codes.setdefault((one, other), len(codes)) for one, other in number[new].tolist()]
    if len(codes) > _MOST_POOLS:
        raise Malformed(f"has more than {_MOST_POOLS:,} pools")
    tables.set_shape(container, Shape.PAIR, np.array(found)[np.cumsum(new) - 1])


def _stacks_of(fields: _Fields, tables: Tables, key: Word = Word.FRAMES) -> Int64s:
    lists, found = fields.find(key, Token.LIST)
    return np.where(found, tables.rows_of(lists, Shape.STACK, 0), 0)


def _add_allocations(fields: _Fields, lists: Groups, tables: Tables) -> None:
    """Add the allocations of blocks, and the lists of them, which stand for the last one's stack."""
    if len(fields) == 0:
        return
    tables.set_shape(fields.container, Shape.ALLOCATION, _stacks_of(fields, tables))
    items, owner = lists.items, np.repeat(lists.container, lists.count)
    found = np.flatnonzero(tables.shapes_of(items, items.kind == Token.DICT) == Shape.ALLOCATION)
    tables.set_shape(owner[found], Shape.STACK, tables.containers["row"][items.number[found]])


def _add_entries(fields: _Fields, texts: Texts, tables: Tables) -> None:
    action = fields.words(Word.ACTION, texts) - FIRST_ACTION
    action[(action < 0) | (action >= Action.OTHER)] = Action.OTHER
    address, has_address = fields.integers(Word.ADDR, 0, _MOST_ADDRESS)
    free, has_free = fields.integers(Word.DEVICE_FREE, 0, _MOST_BYTES)
    size, has_size = fields.integers(Word.SIZE, 0, _MOST_BYTES)
    stream, has_stream = fields.find(Word.STREAM, Token.INT)
    time_us, has_time = fields.integers(Word.TIME_US, 0, _MOST_TIME_US)
    whole = fields.find(Word.ACTION, Token.TEXT)[1] & (has_address | has_free) & has_size & has_stream
    tables.leave_out("entry of the history", len(fields) - int(whole.sum()))
    known = len(tables.entries)
    tables.set_shape(fields.container[whole], Shape.ENTRY, known + np.arange(int(whole.sum())))
    tables.entries.add(
        container=fields.container[whole],
        owner=np.full(int(whole.sum()), NONE),
        action=action[whole],
        address=np.where(has_address, address, free)[whole],
        size=size[whole],
        stream=stream[whole],
        time=np.where(has_time, 1000 * time_us, NONE)[whole],
        stack=_stacks_of(fields, tables)[whole],
    )


def _add_blocks(fields: _Fields, texts: Texts, tables: Tables) -> None:
    state = fields.words(Word.STATE, texts) - FIRST_STATE
    address, has_address = fields.integers(Word.ADDRESS, 0, _MOST_ADDRESS)
    size, has_size = fields.integers(Word.SIZE, 0, _MOST_BYTES)
    requested, has_requested = fields.integers(Word.REQUESTED_SIZE, 0, _MOST_BYTES)
    whole = (state >= 0) & (state < len(State)) & has_size & (has_address | ~fields.has(Word.ADDRESS))
    tables.leave_out("block", len(fields) - int(whole.sum()))
    known = len(tables.blocks)
    tables.set_shape(fields.container[whole], Shape.BLOCK, known + np.arange(int(whole.sum())))
    requested = np.where(has_requested, requested, size)
    stack = np.where(fields.has(Word.FRAMES), _stacks_of(fields, tables), _stacks_of(fields, tables, Word.HISTORY))
    tables.blocks.add(
        owner=np.full(int(whole.sum()), NONE),
        address=np.where(has_address, address, NONE)[whole],
        size=size[whole],
        requested=np.where(state == State.INACTIVE, 0, requested)[whole],
        state=state[whole],
        stack=stack[whole],
    )


def _add_segments(fields: _Fields, texts: Texts, tables: Tables) -> None:
    device, has_device = fields.integers(Word.DEVICE, 0, _MOST_DEVICES)
    address, has_address = fields.integers(Word.ADDRESS, 0, _MOST_ADDRESS)
    size, has_size = fields.integers(Word.TOTAL_SIZE, 0, _MOST_BYTES)
    stream, has_stream = fields.find(Word.STREAM, Token.INT)
    pool, has_pool = fields.find(Word.SEGMENT_POOL_ID, Token.TUPLE)
    blocks, has_blocks = fields.find(Word.BLOCKS, Token.LIST)
    whole = has_device & has_address & has_size & has_stream & has_blocks
    tables.leave_out("segment", len(fields) - int(whole.sum()))
    known = len(tables.segments)
    tables.set_shape(fields.container[whole], Shape.SEGMENT, known + np.arange(int(whole.sum())))
    tables.segments.add(
        owner=np.full(int(whole.sum()), NONE),
        blocks=blocks[whole],
        device=device[whole],
        address=address[whole],
        size=size[whole],
        stream=stream[whole],
        pool=np.where(has_pool, tables.rows_of(pool, Shape.PAIR, 0), 0)[whole],
        is_large=(fields.words(Word.SEGMENT_TYPE, texts) == Word.LARGE)[whole],
        is_expandable=fields.find(Word.IS_EXPANDABLE, Token.BOOL)[0][whole],
    )


def _set_owners(lists: Groups, tables: Tables) -> None:
    """Note the list around each entry, block and segment, and the lists inside lists."""
    items, owner = lists.items, np.repeat(lists.container, lists.count)
    shape = tables.shapes_of(items, items.kind == Token.DICT)
    for its_shape, rows_of_shape in (
        (Shape.ENTRY, tables.entries),
        (Shape.BLOCK, tables.blocks),
        (Shape.SEGMENT, tables.segments),
    ):
        found = np.flatnonzero(shape == its_shape)
        if len(found):
            rows_of_shape["owner"][tables.containers["row"][items.number[found]]] = owner[found]
    inner = np.flatnonzero(items.kind == Token.LIST)
    if len(tables.lists) + len(inner) > _MOST_LISTS:
        raise Malformed(f"has more than {_MOST_LISTS:,} lists inside lists")
    tables.lists.add(owner=owner[inner], item=items.number[inner])
