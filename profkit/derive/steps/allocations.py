"""Memory from the allocator's events: what is live at each moment, and what outlives its step."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from profkit.derive.steps.boundaries import Steps
from profkit.trace.events import HOST, NONE, Category, Int64s, Rows, Trace
from profkit.trace.statistics import distinct

_DEVICE_TYPES_ON_HOST = (HOST, NONE)


class Memory(Struct, frozen=True):
    """Allocations of the trace in time order.

    ``rows`` are the allocating events, ``freed_by`` the rows of the events that free them. `NONE` means that no event
    does: the memory is live at the end, or was freed between the located and the measured steps, where nothing is
    recorded. ``held_bytes`` is all that is live after each event, at ``times_ns``. If the recording says how much there
    was in all, so that it ``is_absolute``, that includes the ``base_bytes`` from before the first event, and ``peaks``
    are the most that was live on each device, by its number. Else bytes count from the first event.
    """

    rows: Rows
    freed_by: Rows
    size_bytes: Int64s
    times_ns: Int64s
    held_bytes: Int64s
    live_at_step_end_bytes: Int64s
    peak_bytes: int
    base_bytes: int = 0
    is_absolute: bool = False
    peaks: tuple[tuple[int, int], ...] = ()

    @property
    def present(self) -> bool:
        return len(self.rows) > 0

    def most_held_within(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """When most was live between two moments, and how much; 0 without an event."""
        first, last = np.searchsorted(self.times_ns, (start_ns, end_ns))
        if last <= first:
            return start_ns, 0
        at = first + int(self.held_bytes[first:last].argmax())
        return int(self.times_ns[at]), int(self.held_bytes[at])


def follow_memory(trace: Trace, steps: Steps) -> Memory:
    """Pair allocations with frees by address and follow the live bytes, on the device if it has any."""
    events = trace.events
    rows = trace.rows(Category.MEMORY)
    on_host = np.isin(events.device_type[rows], _DEVICE_TYPES_ON_HOST)
    rows = rows[~on_host] if (~on_host).any() else rows
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    size, start_ns = events.size_bytes[rows], events.start_ns[rows]
    known, device = events.held_bytes[rows], events.device[rows]
    is_absolute = bool(len(rows)) and not on_host.all() and _are_totals(known, size)
    before, change = _changes(known, size, device) if is_absolute else (0, size)
    held = np.concatenate([[0], np.cumsum(change)]) + before
    allocating = size > 0
    return Memory(
        rows=rows[allocating],
        freed_by=_pair(events.address[rows], size, rows, _part(start_ns, steps))[allocating],
        size_bytes=size[allocating],
        times_ns=start_ns,
        held_bytes=held[1:],
        live_at_step_end_bytes=held[np.searchsorted(start_ns, steps.end_ns)],
        peak_bytes=int(held.max()),
        base_bytes=before,
        is_absolute=is_absolute,
        peaks=tuple((one, int(known[device == one].max())) for one in distinct(device).tolist()) if is_absolute else (),
    )


def _are_totals(known: Int64s, size: Int64s) -> bool:
    """Whether ``known`` can be the total after each event: at least as much as the event allocates."""
    return bool((known >= np.maximum(size, 0)).all())


def _changes(known: Int64s, size: Int64s, device: NDArray[np.int8]) -> tuple[int, Int64s]:
    """What all devices held before the first event, and by how much each event changed it. Unrecorded changes between
    two events of a device count for the later one."""
    before, change = 0, np.zeros(len(known), dtype=np.int64)
    for one in distinct(device):
        here = np.flatnonzero(device == one)
        first_bytes = int(known[here[0]]) - int(size[here[0]])
        change[here] = np.diff(known[here], prepend=np.int64(first_bytes))
        before += first_bytes
    return before, change


def _part(times_ns: Int64s, steps: Steps) -> Int64s:
    """Which of the joined recordings a time is from: that of the located steps or that of the measured ones."""
    seams = np.flatnonzero(steps.located[:-1] & ~steps.located[1:]) + 1
    return np.searchsorted(steps.start_ns[seams], times_ns, side="right").astype(np.int64)


def _pair(address: Int64s, size: Int64s, rows: Rows, part: Int64s) -> Rows:
    """The event that frees each allocation: the next at its address in the same recording, if that one frees."""
    freed = np.full(len(rows), NONE, dtype=np.int64)
    order = np.argsort(address, kind="stable")
    here, after = order[:-1], order[1:]
    pairs = (address[here] == address[after]) & (address[here] != NONE) & (part[here] == part[after])
    pairs &= (size[here] > 0) & (size[after] < 0)
    freed[here[pairs]] = rows[after[pairs]]
    return freed
