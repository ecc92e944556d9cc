"""What the pieces of memory that are held are for."""

from __future__ import annotations

import numpy as np

from profkit.derive.memory.allocator import Allocator
from profkit.derive.memory.purposes import Purpose
from profkit.trace.events import Bools

LARGE_BYTES = 256 << 20
"""A smaller peak fits beside everything else even into a GPU of 4 GB, the smallest that people train on. Nor
does less that lies free in gaps matter: the smallest segments alone leave 20 MiB a stream."""
DOMINATES = 0.5
"""Of the peak: what one purpose takes of it then decides whether the model fits."""


def purposes_of(allocator: Allocator, pieces: Bools) -> dict[Purpose, int]:
    """How many bytes of these pieces are for what, the most first; nothing of what is none."""
    sizes = np.bincount(allocator.purposes[pieces], allocator.allocations.size_bytes[pieces], len(Purpose))
    order = sorted(Purpose, key=lambda purpose: -sizes[purpose])
    return {purpose: int(sizes[purpose]) for purpose in order if sizes[purpose] > 0}


def held_for(allocator: Allocator, pieces: Bools, purpose: Purpose) -> int:
    """How many bytes of these pieces are for that."""
    wanted = pieces & (allocator.purposes == purpose)
    return int(allocator.allocations.size_bytes[wanted].sum())
