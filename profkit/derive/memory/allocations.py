"""Every piece of memory that the program held while the allocator's history was kept: when, how large, and whose.

The sizes are the allocator's own, so their sums equal ``torch.cuda.memory_stats``. Its history says what was asked for.
What that takes follows from its rounding and splitting (``c10/cuda/CUDACachingAllocator.cpp``: ``round_size``,
``should_split``): multiples of 512 bytes, and in a large segment also what is left, if that is 1 MiB at most.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from profkit.trace.events import NONE, Bools, Int32s, Int64s, Rows
from profkit.trace.snapshot.columns import Action, History, Snapshot, State
from profkit.trace.statistics import distinct

_ROUNDING = 512
"""``kMinBlockSize``."""
_LEAST_SPLIT = 1 << 20
"""``kSmallSize``: larger requests come from segments, where a block gets no more than this in addition."""
_MOST_NEIGHBOURS = 256
"""At most so many blocks, of all times, are searched for the one that follows another. Within 1 MiB there are never
that many, except in a file that was made to take long."""
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Allocations:
    """One row for each piece, by device. ``made_by`` and ``freed_by`` are rows of the history, `NONE` for a piece that
    is older than the history or held to its end. ``requested_bytes`` is what the program asked for, ``size_bytes`` what
    that takes. ``stack`` allocated it, ``freeing_stack`` freed it, and ``pool`` is that of its segment."""

    device: Int32s
    address: Int64s
    size_bytes: Int64s
    requested_bytes: Int64s
    made_by: Rows
    freed_by: Rows
    stack: Int32s
    freeing_stack: Int32s
    pool: Int32s

    def __len__(self) -> int:
        return len(self.address)

    @property
    def is_held(self) -> Bools:
        """Those that the program still holds."""
        held: Bools = self.freed_by == NONE
        return held

    def live_after(self, device: int, row: int) -> Bools:
        """The pieces of a device that were held after this row of the history; with `NONE`, before all rows."""
        live: Bools = (self.device == device) & (self.made_by <= row)
        live &= (self.freed_by == NONE) | (self.freed_by > row)
        return live


@dataclass(frozen=True, slots=True)
class _Spans:
    """Addresses that were taken from one row of the history to another: by a block, or by what follows a segment."""

    address: Int64s
    first: Rows
    last: Rows


def follow_allocations(snapshot: Snapshot) -> Allocations:
    """Pair allocations with frees, and both with the blocks that are left."""
    devices = distinct(np.concatenate([snapshot.history.device, snapshot.segments.device]))
    parts = [_follow(snapshot, int(device)) for device in devices] or [_no_allocations()]
    names = [field.name for field in fields(Allocations)]
    return Allocations(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _follow(snapshot: Snapshot, device: int) -> Allocations:
    history, blocks, segments = snapshot.history, snapshot.blocks, snapshot.segments
    made, freed, done = _pair(history, device)
    held = np.flatnonzero((segments.device[blocks.segment] == device) & (blocks.state == State.ACTIVE))
    address = history.address[np.where(made >= 0, made, freed)]
    block = _blocks_at(blocks.address[held], address)
    is_left = (freed == NONE) & (block >= 0)
    known = is_left | (freed != NONE)
    made, freed, done, address, block = (column[known] for column in (made, freed, done, address, block))
    is_left = freed == NONE
    older = np.setdiff1d(np.arange(len(held)), block[is_left])
    older = held[older]
    requested = history.size_bytes[np.where(made >= 0, made, freed)]
    found = Allocations(
        device=np.full(len(made), device, dtype=np.int32),
        address=address,
        size_bytes=requested,
        requested_bytes=requested,
        made_by=made,
        freed_by=freed,
        stack=np.where(made >= 0, history.stack[made], 0),
        freeing_stack=np.where(freed >= 0, history.stack[freed], 0),
        pool=_pools(snapshot, device, address),
    )
    size = _sizes(snapshot, found, done)
    size[is_left] = blocks.size_bytes[held[block[is_left]]]
    nothing = np.full(len(older), NONE, dtype=np.int64)
    return Allocations(
        device=np.full(len(made) + len(older), device, dtype=np.int32),
        address=np.concatenate([address, blocks.address[older]]),
        size_bytes=np.concatenate([size, blocks.size_bytes[older]]),
        requested_bytes=np.concatenate([requested, blocks.requested_bytes[older]]),
        made_by=np.concatenate([made, nothing]),
        freed_by=np.concatenate([freed, nothing]),
        stack=np.concatenate([found.stack, blocks.stack[older]]).astype(np.int32),
        freeing_stack=np.concatenate([found.freeing_stack, np.zeros(len(older), np.int32)]).astype(np.int32),
        pool=np.concatenate([found.pool, segments.pool[blocks.segment[older]]]).astype(np.int32),
    )


def _pair(history: History, device: int) -> tuple[Rows, Rows, Rows]:
    """For each piece of memory the rows that allocated it, gave it back, and completed its free; `NONE` without such a
    row. If an address is allocated twice without a free in between, the free was not recorded, and the second
    allocation counts as the free."""
    rows = np.flatnonzero((history.device == device) & np.isin(history.action, (Action.ALLOC, Action.FREE_REQUESTED)))
    rows = rows[np.argsort(history.address[rows], kind="stable")]
    address, allocates = history.address[rows], history.action[rows] == Action.ALLOC
    same = address[1:] == address[:-1]
    after = np.full(len(rows), NONE, dtype=np.int64)
    after[:-1][same] = rows[1:][same]
    orphan = ~allocates
    orphan[1:] &= ~(same & allocates[:-1])
    made = np.concatenate([rows[allocates], np.full(orphan.sum(), NONE)])
    freed = np.concatenate([after[allocates], rows[orphan]])
    order = np.argsort(np.where(made >= 0, made, freed), kind="stable")
    made, freed = made[order], freed[order]
    return made, freed, _completed(history, device, freed)


def _completed(history: History, device: int, freed: Rows) -> Rows:
    """The row at which each freed piece can be used again, as it may wait for other streams; `_LAST` if there is
    none."""
    rows = np.flatnonzero((history.device == device) & (history.action == Action.FREE_COMPLETED))
    rows = rows[np.argsort(history.address[rows], kind="stable")]
    done = np.where(freed == NONE, _LAST, freed)
    waits = np.flatnonzero((freed != NONE) & (history.action[freed] == Action.FREE_REQUESTED))
    done[waits] = _next_there(history.address, rows, freed[waits])
    return done


def _next_there(address: Int64s, rows: Rows, after: Rows) -> Rows:
    """For each row of ``after`` the first of ``rows``, sorted by address and row, that follows it and has its
    address."""
    order = np.lexsort((np.concatenate([rows, after]), address[np.concatenate([rows, after])]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    behind = np.cumsum(order < len(rows))[place[len(rows) :]]  # so many of the rows lie before
    following = np.concatenate([rows, [_LAST]])[behind]
    found = following != _LAST
    found[found] = address[following[found]] == address[after[found]]
    return np.where(found, following, _LAST)


def _blocks_at(addresses: Int64s, wanted: Int64s) -> Rows:
    """The block that begins at each address, `NONE` without one. Blocks are sorted by address."""
    if not len(addresses):
        return np.full(len(wanted), NONE, dtype=np.int64)
    at = np.searchsorted(addresses, wanted).clip(max=len(addresses) - 1)
    return np.where(addresses[at] == wanted, at, NONE)


def _pools(snapshot: Snapshot, device: int, address: Int64s) -> Int32s:
    """The pool of the segment that is at each address now, 0 if there is none."""
    segments = snapshot.segments
    mine = np.flatnonzero(segments.device == device)
    if not len(mine):
        return np.zeros(len(address), dtype=np.int32)
    at = mine[(np.searchsorted(segments.address[mine], address, side="right") - 1).clip(min=0)]
    inside = (address >= segments.address[at]) & (address < segments.address[at] + segments.size_bytes[at])
    return np.where(inside, segments.pool[at], 0).astype(np.int32)


def _sizes(snapshot: Snapshot, found: Allocations, done: Rows) -> Int64s:
    """The bytes that each piece of the history takes."""
    rounded = -(-found.requested_bytes.clip(min=1) // _ROUNDING) * _ROUNDING
    wanted = np.flatnonzero((rounded > _LEAST_SPLIT) & ~_in_expandable(snapshot, found))
    if not len(wanted):
        return rounded
    spans = _spans(snapshot, found, done)
    address, at_row = found.address[wanted], found.made_by[wanted]
    end = _next_taken(spans, address + rounded[wanted], at_row)
    left = end - (address + rounded[wanted])
    rounded[wanted] += np.where((left > 0) & (left <= _LEAST_SPLIT), left, 0)
    return rounded


def _in_expandable(snapshot: Snapshot, found: Allocations) -> Bools:
    """Whether each piece is in an expandable segment, where blocks are split exactly."""
    segments = snapshot.segments
    is_all = snapshot.settings.get("expandable_segments", "") == "True"
    inside = np.full(len(found), is_all)
    for at in np.flatnonzero(segments.is_expandable):
        begin = segments.address[at]
        inside |= (found.address >= begin) & (found.address < begin + segments.size_bytes[at])
    return inside


def _spans(snapshot: Snapshot, found: Allocations, done: Rows) -> _Spans:
    """Blocks and the ends of segments, sorted by address. Blocks that are older than the history and still held are
    among them, as they limit the room of others too."""
    device = int(found.device[0])
    blocks, segments = snapshot.blocks, snapshot.segments
    end, first, last = _segment_ends(snapshot, device)
    mine = segments.device[blocks.segment] == device
    kept = np.flatnonzero(mine & (blocks.state == State.ACTIVE))
    kept = kept[~np.isin(blocks.address[kept], found.address[found.is_held])]
    address = np.concatenate([found.address, end, blocks.address[kept]])
    first = np.concatenate([found.made_by, first, np.full(len(kept), NONE)])
    last = np.concatenate([done, last, np.full(len(kept), _LAST)])
    order = np.argsort(address, kind="stable")
    return _Spans(address[order], first[order], last[order])


def _segment_ends(snapshot: Snapshot, device: int) -> tuple[Int64s, Rows, Rows]:
    """The address after each segment, and the rows of the history from which and to which it was there."""
    history, segments = snapshot.history, snapshot.segments
    wanted = (history.device == device) & np.isin(history.action, (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE))
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(history.address[rows], kind="stable")]
    end = history.address[rows] + history.size_bytes[rows]
    gets = history.action[rows] == Action.SEGMENT_ALLOC
    same = end[1:] == end[:-1]
    first, last = np.where(gets, rows, NONE), np.where(gets, _LAST, rows)
    last[:-1][same & gets[:-1]] = rows[1:][same & gets[:-1]]
    first[1:][same & ~gets[1:]] = rows[:-1][same & ~gets[1:]]
    mine = np.flatnonzero(segments.device == device)
    now = segments.address[mine] + segments.size_bytes[mine]
    now = now[~np.isin(now, end)]
    nothing, ever = np.full(len(now), NONE), np.full(len(now), _LAST)
    return np.concatenate([end, now]), np.concatenate([first, nothing]), np.concatenate([last, ever])


def _next_taken(spans: _Spans, begin: Int64s, row: Rows) -> Int64s:
    """The first address from each ``begin`` on that was taken at that row of the history, within what a block can get
    in addition; one beyond that if there is none."""
    beyond = begin + _LEAST_SPLIT + 1
    found, at = beyond.copy(), np.searchsorted(spans.address, begin)
    open_ones = np.arange(len(begin))
    for _ in range(_MOST_NEIGHBOURS):
        open_ones = open_ones[at[open_ones] < len(spans.address)]
        open_ones = open_ones[spans.address[at[open_ones]] < beyond[open_ones]]
        if not len(open_ones):
            break
        here = at[open_ones]
        taken = (spans.first[here] <= row[open_ones]) & (spans.last[here] > row[open_ones])
        found[open_ones[taken]] = spans.address[here[taken]]
        open_ones = open_ones[~taken]
        at[open_ones] += 1
    return found


def _no_allocations() -> Allocations:
    wide, narrow = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    return Allocations(narrow, wide, wide, wide, wide, wide, narrow, narrow, narrow)
