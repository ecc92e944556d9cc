"""Each device's account in a snapshot: how much is held, reserved and free in which way, and when most was held."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from profkit.derive.memory.allocations import Allocations, follow_allocations
from profkit.derive.memory.origins import known_moments, tell_origins, tell_origins_of_entries
from profkit.derive.memory.purposes import tell_purposes
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.snapshot.columns import Action, Snapshot, State
from profkit.trace.statistics import distinct


class DeviceUse(Struct, frozen=True):
    """The allocator's account of one device, in bytes; the first three are those of `torch.cuda.memory_stats`.

    ``cached_bytes`` are the free bytes in segments that are free as a whole, ``split_bytes`` those in used segments.
    ``peak_row`` is the row of the history after which most was held, `NONE` if that was before all rows. ``rows`` are
    the device's first row and the one after its last. ``older_bytes`` is what was held when the history begins.
    """

    device: int
    allocated_bytes: int
    reserved_bytes: int
    inactive_split_bytes: int
    cached_bytes: int
    split_bytes: int
    peak_bytes: int
    peak_row: int
    reserved_peak_bytes: int
    older_bytes: int
    rows: tuple[int, int]

    @property
    def has_history(self) -> bool:
        return self.rows[1] > self.rows[0]


@dataclass(frozen=True, slots=True)
class Allocator:
    """A snapshot, its pieces of memory and what they are for, and each device's account. ``origins`` has an `Origin`
    for each stack, ``entries`` one for each row of the history, and ``purposes`` a `Purpose` for each piece."""

    snapshot: Snapshot
    allocations: Allocations
    origins: NDArray[np.uint8]
    entries: NDArray[np.uint8]
    purposes: NDArray[np.uint8]
    devices: tuple[DeviceUse, ...]

    @property
    def fullest(self) -> DeviceUse:
        """The device with the highest peak; there must be one."""
        return max(self.devices, key=lambda use: use.peak_bytes)

    def live_at_peak(self, use: DeviceUse) -> Bools:
        """The pieces that were held when most was."""
        return self.allocations.live_after(use.device, use.peak_row)


def describe_allocator(snapshot: Snapshot) -> Allocator:
    found = follow_allocations(snapshot)
    origins = tell_origins(snapshot.stacks)
    entries = tell_origins_of_entries(snapshot.history, origins)
    purposes = tell_purposes(snapshot.history, found, origins, entries, known_moments(snapshot.stacks))
    devices = distinct(np.concatenate([snapshot.segments.device, snapshot.history.device]))
    return Allocator(
        snapshot, found, origins, entries, purposes, tuple(_account(snapshot, found, int(device)) for device in devices)
    )


def _account(snapshot: Snapshot, found: Allocations, device: int) -> DeviceUse:
    segments, blocks = snapshot.segments, snapshot.blocks
    mine = segments.device[blocks.segment] == device
    parts = np.bincount(blocks.segment, minlength=len(segments))
    used = np.bincount(blocks.segment[blocks.state != State.INACTIVE], minlength=len(segments)) > 0
    free = mine & (blocks.state == State.INACTIVE)
    splits = free & (parts[blocks.segment] > 1) & ~segments.is_expandable[blocks.segment]
    rows = rows_of(snapshot, device)
    held = held_after(found, device, rows)
    peak = int(held.argmax())
    return DeviceUse(
        device=device,
        allocated_bytes=int(blocks.size_bytes[mine & (blocks.state == State.ACTIVE)].sum()),
        reserved_bytes=int(segments.size_bytes[segments.device == device].sum()),
        inactive_split_bytes=int(blocks.size_bytes[splits].sum()),
        cached_bytes=int(blocks.size_bytes[free & ~used[blocks.segment]].sum()),
        split_bytes=int(blocks.size_bytes[free & used[blocks.segment]].sum()),
        peak_bytes=int(held[peak]),
        peak_row=rows[0] + peak - 1 if peak else NONE,
        reserved_peak_bytes=int(reserved_after(snapshot, device, rows).max()),
        older_bytes=int(held[0]),
        rows=rows,
    )


def rows_of(snapshot: Snapshot, device: int) -> tuple[int, int]:
    """The first row of a device in the history, and the one after its last."""
    rows = np.flatnonzero(snapshot.history.device == device)
    return (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)


def held_after(found: Allocations, device: int, rows: tuple[int, int], wanted: Bools | None = None) -> Int64s:
    """The bytes that the program holds of a device before its history and after each row of it; only of the ``wanted``
    pieces if these are given."""
    mine = found.device == device
    if wanted is not None:
        mine &= wanted
    change = np.zeros(rows[1] - rows[0] + 1, dtype=np.int64)
    np.add.at(change, _places(found.made_by[mine], rows[0]), found.size_bytes[mine])
    freed = mine & (found.freed_by != NONE)
    np.add.at(change, _places(found.freed_by[freed], rows[0]), -found.size_bytes[freed])
    return np.cumsum(change)


def _places(row: Rows, first: int) -> Rows:
    return np.where(row == NONE, 0, row - first + 1)


def reserved_after(snapshot: Snapshot, device: int, rows: tuple[int, int]) -> Int64s:
    """The bytes reserved of a device before its history and after each row, counted back from the snapshot."""
    history = snapshot.history
    action, size = history.action[slice(*rows)], history.size_bytes[slice(*rows)]
    change = np.where(np.isin(action, (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)), size, 0)
    change = change - np.where(np.isin(action, (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)), size, 0)
    after = np.concatenate([[0], np.cumsum(change)])
    now = int(snapshot.segments.size_bytes[snapshot.segments.device == device].sum())
    reserved: Int64s = after + (now - after[-1])
    return reserved
