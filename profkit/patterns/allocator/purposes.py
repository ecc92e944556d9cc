"""What the pieces of memory that are held are for."""

from __future__ import annotations

import numpy as np

from profkit.derive.memory.allocator import Allocator
from profkit.derive.memory.purposes import Purpose
from profkit.trace.events import Bools

LARGE_BYTES = 256 << 20
"""A smaller peak fits beside everything else even into a GPU of 4 GB, the smallest that people train on. Nor does it
matter if less than that is free in gaps: the smallest segments alone leave 20 MiB per stream."""
DOMINATES = 0.5
"""A share of the peak: a purpose that takes this much of it decides whether the model fits."""


def purposes_of(allocator: Allocator, pieces: Bools) -> dict[Purpose, int]:
    """How many bytes of these pieces serve which purpose, the largest first; purposes without any are left out."""
    sizes = np.bincount(allocator.purposes[pieces], allocator.allocations.size_bytes[pieces], len(Purpose))
    order = sorted(Purpose, key=lambda purpose: -sizes[purpose])
    return {purpose: int(sizes[purpose]) for purpose in order if sizes[purpose] > 0}


def held_for(allocator: Allocator, pieces: Bools, purpose: Purpose) -> int:
    """How many bytes of these pieces serve this purpose."""
    wanted = pieces & (allocator.purposes == purpose)
    return int(allocator.allocations.size_bytes[wanted].sum())
