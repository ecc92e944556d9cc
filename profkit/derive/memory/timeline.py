"""What memory was held for over the allocator's history, in as many columns as a picture has room for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from profkit.derive.memory.allocator import Allocator, DeviceUse, held_after, reserved_after
from profkit.derive.memory.purposes import Purpose
from profkit.trace.events import Int64s, Rows

MOST_COLUMNS = 300
"""More than a picture shows, but no more than some ten kilobytes of report."""
_UPWARDS = (
    Purpose.EARLIER,
    Purpose.PARAMETERS,
    Purpose.OPTIMIZER_STATE,
    Purpose.COPIES,
    Purpose.WORKSPACE,
    Purpose.GRAPH_POOL,
    Purpose.OWN,
    Purpose.GRADIENTS,
    Purpose.ACTIVATIONS,
    Purpose.TEMPORARIES,
    Purpose.UNKNOWN,
)
"""From the bottom up: what stays lies below what comes and goes."""


class Timeline(Struct, frozen=True):
    """Bytes of each purpose, and bytes reserved, at some moments of a device's history. ``entries`` counts the
    allocator's entries up to each moment. Of neighbouring moments the fullest is kept, so that no peak is lost."""

    entries: Rows
    reserved_bytes: Int64s
    held_bytes: dict[Purpose, Int64s]


def memory_timeline(allocator: Allocator, use: DeviceUse, most_columns: int = MOST_COLUMNS) -> Timeline | None:
    """None for a device without a history."""
    if not use.has_history:
        return None
    moments = _fullest_moments(held_after(allocator.allocations, use.device, use.rows), most_columns)
    held = {}
    for purpose in _UPWARDS:
        wanted = allocator.purposes == purpose
        size = held_after(allocator.allocations, use.device, use.rows, wanted)[moments]
        if size.any():
            held[purpose] = size
    return Timeline(moments, reserved_after(allocator.snapshot, use.device, use.rows)[moments], held)


def _fullest_moments(held: Int64s, most: int) -> Rows:
    """The fullest moment of each of the equal parts of the history."""
    bounds = np.linspace(0, len(held), min(most, len(held)) + 1).astype(np.int64)
    return np.array([begin + held[begin:end].argmax() for begin, end in pairwise(bounds.tolist())])
