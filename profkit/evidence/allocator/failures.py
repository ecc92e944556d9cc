"""Requests that found no room: what was asked for, and what was held and free at that moment."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.memory.allocator import held_after, reserved_after
from profkit.evidence.allocator.lines import allocator_of
from profkit.trace.snapshot.values import Action, State


class Failure(Struct, frozen=True):
    """A request that found no room, after PyTorch had handed back all segments that were free as a whole. ``row`` is
    that of the history, ``free_bytes`` what the driver had left. ``gap_bytes`` lay free inside of used segments; in how
    many ``gaps``, and how large, only a snapshot shows that was taken then. ``is_last`` says that nothing was allocated
    afterwards: the program ended by it, or the snapshot was taken there."""

    device: int
    row: int
    stack: int
    asked_bytes: int
    free_bytes: int
    held_bytes: int
    reserved_bytes: int
    is_last: bool
    gaps: int = 0
    largest_gap_bytes: int = 0

    @property
    def gap_bytes(self) -> int:
        return self.reserved_bytes - self.held_bytes


def failures(facts: Facts) -> tuple[Failure, ...]:
    """The requests that found no room, by device and in their order."""
    return facts.once(_failures)


def _failures(facts: Facts) -> tuple[Failure, ...]:
    allocator = allocator_of(facts)
    snapshot, history = allocator.snapshot, allocator.snapshot.history
    found = []
    for use in allocator.devices:
        rows = np.flatnonzero((history.device == use.device) & (history.action == Action.OOM))
        if not len(rows):
            continue
        allocations = np.flatnonzero((history.device == use.device) & (history.action == Action.ALLOC))
        held = held_after(allocator.allocations, use.device, use.rows)[rows - use.rows[0]]
        reserved = reserved_after(snapshot, use.device, use.rows)[rows - use.rows[0]]
        blocks = snapshot.blocks
        free = (snapshot.segments.device[blocks.segment] == use.device) & (blocks.state == State.INACTIVE)
        sizes = blocks.size_bytes[free]
        for row, held_bytes, reserved_bytes in zip(rows.tolist(), held.tolist(), reserved.tolist(), strict=True):
            is_last = not (allocations > row).any()
            stays = is_last and use.rows[1] == row + 1
            found.append(Failure(
                device=use.device,
                row=row,
                stack=int(history.stack[row]),
                asked_bytes=int(history.size_bytes[row]),
                free_bytes=int(history.address[row]),
                held_bytes=held_bytes,
                reserved_bytes=reserved_bytes,
                is_last=is_last,
                gaps=len(sizes) if stays else 0,
                largest_gap_bytes=int(sizes.max(initial=0)) if stays else 0,
            ))  # fmt: skip
    return tuple(found)
