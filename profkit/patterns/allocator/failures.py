"""Requests that found no room: what was asked for, and what was held and free at that moment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.memory.allocator import Allocator, DeviceUse, held_after, reserved_after
from profkit.patterns.allocator.lines import allocator_of
from profkit.trace.events import Int64s
from profkit.trace.snapshot.columns import Action, Snapshot, State


class Failure(Struct, frozen=True):
    """A request that found no room even after PyTorch had handed back all segments that were free as a whole. ``row``
    is its place in the history, ``free_bytes`` what the driver had left. ``gap_bytes`` were free inside used segments,
    where the request might have fitted. Only a snapshot taken at that moment shows how many ``gaps`` that request could
    use and how large they were; otherwise all that was free counts. ``is_last`` says that nothing was allocated
    afterwards: the request ended the program, or the snapshot was taken there."""

    device: int
    row: int
    stack: int
    asked_bytes: int
    free_bytes: int
    held_bytes: int
    reserved_bytes: int
    gap_bytes: int
    is_last: bool
    gaps: int = 0
    largest_gap_bytes: int = 0


@derived_once
def failures(facts: Facts) -> tuple[Failure, ...]:
    """The requests that found no room, by device and in order."""
    return tuple(failure for use in allocator_of(facts).devices for failure in _of_device(allocator_of(facts), use))


def _of_device(allocator: Allocator, use: DeviceUse) -> Iterator[Failure]:
    snapshot, history, first = allocator.snapshot, allocator.snapshot.history, use.rows[0]
    mine = history.device == use.device
    rows = np.flatnonzero(mine & (history.action == Action.OOM))
    if not len(rows):
        return
    held = held_after(allocator.allocations, use.device, use.rows)[rows - first]
    reserved = reserved_after(snapshot, use.device, use.rows)[rows - first]
    last = int(np.flatnonzero(mine & (history.action == Action.ALLOC)).max(initial=-1))
    for row, held_bytes, reserved_bytes in zip(rows.tolist(), held.tolist(), reserved.tolist(), strict=True):
        is_now = use.rows[1] == row + 1
        gaps = _gaps(snapshot, use.device, int(history.stream[row])) if is_now else np.zeros(0, dtype=np.int64)
        yield Failure(
            device=use.device,
            row=row,
            stack=int(history.stack[row]),
            asked_bytes=int(history.size_bytes[row]),
            free_bytes=int(history.address[row]),
            held_bytes=held_bytes,
            reserved_bytes=reserved_bytes,
            gap_bytes=int(gaps.sum()) if is_now else reserved_bytes - held_bytes,
            is_last=row > last,
            gaps=len(gaps),
            largest_gap_bytes=int(gaps.max(initial=0)),
        )


def _gaps(snapshot: Snapshot, device: int, stream: int) -> Int64s:
    """The sizes of what is free now for requests of a stream, without the private pools of CUDA graphs."""
    blocks, segments = snapshot.blocks, snapshot.segments
    usable = (segments.device == device) & (segments.stream == stream) & (segments.pool == 0)
    sizes: Int64s = blocks.size_bytes[usable[blocks.segment] & (blocks.state == State.INACTIVE)]
    return sizes
