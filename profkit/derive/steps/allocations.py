"""Memory from the allocator's events: what is live at each moment, and what outlives its step."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.steps.steps import Steps
from profkit.trace.events import NONE, Category, Int64s, Rows, Trace

_DEVICE_TYPES_ON_HOST = (0, NONE)


class Memory(Struct, frozen=True):
    """Allocations of the trace in time order.

    ``rows`` are the allocating events, ``freed_by`` the rows of the events that free them. `NONE` means that no event
    does: the memory is live at the end, or was freed between the located and the measured steps, where nothing is
    recorded. ``live_at_step_end_bytes`` is relative to the first event.
    """

    rows: Rows
    freed_by: Rows
    size_bytes: Int64s
    live_at_step_end_bytes: Int64s
    peak_bytes: int

    @property
    def present(self) -> bool:
        return len(self.rows) > 0


def follow_memory(trace: Trace, steps: Steps) -> Memory:
    """Pair allocations with frees by address and follow the live bytes, on the device if it has any."""
    events = trace.events
    rows = trace.rows(Category.MEMORY)
    on_host = np.isin(events.device_type[rows], _DEVICE_TYPES_ON_HOST)
    rows = rows[~on_host] if (~on_host).any() else rows
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    size = events.size_bytes[rows]
    live = np.concatenate([[0], np.cumsum(size)])
    at_end = live[np.searchsorted(events.start_ns[rows], steps.end_ns)]
    allocating = size > 0
    return Memory(
        rows=rows[allocating],
        freed_by=_pair(events.address[rows], size, rows, _part(events.start_ns[rows], steps))[allocating],
        size_bytes=size[allocating],
        live_at_step_end_bytes=at_end,
        peak_bytes=int(live.max()),
    )


def _part(times_ns: Int64s, steps: Steps) -> Int64s:
    """Which of the recordings that the trace was joined from: the located steps' or the measured ones'."""
    seams = np.flatnonzero(steps.located[:-1] & ~steps.located[1:]) + 1
    return np.searchsorted(steps.start_ns[seams], times_ns, side="right").astype(np.int64)


def _pair(address: Int64s, size: Int64s, rows: Rows, part: Int64s) -> Rows:
    """The event that frees each allocation: the next one at its address in its recording, if that one frees."""
    freed = np.full(len(rows), NONE, dtype=np.int64)
    order = np.argsort(address, kind="stable")
    here, after = order[:-1], order[1:]
    pairs = (address[here] == address[after]) & (address[here] != NONE) & (part[here] == part[after])
    pairs &= (size[here] > 0) & (size[after] < 0)
    freed[here[pairs]] = rows[after[pairs]]
    return freed
