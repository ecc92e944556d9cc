"""What the pieces of memory that are held are for."""

from __future__ import annotations

import numpy as np

from profkit.derive.memory.allocator import Allocator
from profkit.derive.memory.purposes import Purpose
from profkit.trace.events import Bools


def purposes_of(allocator: Allocator, pieces: Bools) -> dict[Purpose, int]:
    """How many bytes of these pieces are for what, the most first; nothing of what is none."""
    sizes = np.bincount(allocator.purposes[pieces], allocator.allocations.size_bytes[pieces], len(Purpose))
    order = sorted(Purpose, key=lambda purpose: -sizes[purpose])
    return {purpose: int(sizes[purpose]) for purpose in order if sizes[purpose] > 0}


def held_for(allocator: Allocator, pieces: Bools, purpose: Purpose) -> int:
    """How many bytes of these pieces are for that."""
    wanted = pieces & (allocator.purposes == purpose)
    return int(allocator.allocations.size_bytes[wanted].sum())
