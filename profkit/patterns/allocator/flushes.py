"""Memory that the allocator hands back to the driver and asks for again, as its history shows it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.memory.allocator import Allocator, DeviceUse
from profkit.derive.memory.origins import holding
from profkit.patterns.allocator.lines import allocator_of, frames_of_stacks
from profkit.trace.snapshot.columns import Action

_EMPTYING = "empty_cache"


class Flushes(Struct, frozen=True):
    """How often a device's unused segments were handed back, how much that was in all, and how much was asked for again
    between the first and the last time. ``by_program`` says that `empty_cache` did most of it; ``frame`` is its
    line's."""

    times: int
    freed_bytes: int
    again_bytes: int
    by_program: bool
    frame: int


def flushes(facts: Facts) -> tuple[Flushes, ...]:
    """For each device, what was handed back more than once with new requests in between."""
    allocator = allocator_of(facts)
    found = (_of_device(facts, allocator, use) for use in allocator.devices)
    return tuple(one for one in found if one is not None)


def _of_device(facts: Facts, allocator: Allocator, use: DeviceUse) -> Flushes | None:
    """Frees of segments with no new segment in between are one flush."""
    history, stacks = allocator.snapshot.history, allocator.snapshot.stacks
    wanted = np.isin(history.action, (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE)) & (history.device == use.device)
    rows = np.flatnonzero(wanted)
    frees = history.action[rows] == Action.SEGMENT_FREE
    begins = frees & np.concatenate([[True], ~frees[:-1]]) if len(rows) else frees
    if begins.sum() < 2:
        return None
    first, last = np.flatnonzero(begins)[[0, -1]]
    between = rows[first:last]
    taken = history.action[between] == Action.SEGMENT_ALLOC
    emptying = holding(stacks, np.array([name == _EMPTYING for name in stacks.functions], dtype=bool)[stacks.function])
    by_program = emptying[history.stack[rows[begins]]]
    leading = history.stack[rows[begins]][by_program == (by_program.mean() >= 0.5)]
    return Flushes(
        times=int(begins.sum()),
        freed_bytes=int(history.size_bytes[rows[frees]].sum()),
        again_bytes=int(history.size_bytes[between[taken]].sum()),
        by_program=bool(by_program.mean() >= 0.5),
        frame=int(frames_of_stacks(facts)[np.bincount(leading).argmax()]),
    )
