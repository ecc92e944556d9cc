"""A memory snapshot as columns: what the allocator holds of each device, and its history.

The layout follows the documentation of `torch.cuda.memory._snapshot` and ``torch/csrc/cuda/memory_snapshot.cpp``. Sizes
are bytes, times integer nanoseconds since the epoch; text lies in tables that codes index, and equal stacks are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from profkit.trace.events import Bools, Int32s, Int64s

_PROTO = 0x80
_OLDEST, _NEWEST = 2, 5
"""Protocols: C++ writes 2, Python 4 and, from 3.14 on, 5."""


def is_snapshot(first_bytes: bytes) -> bool:
    """Whether content that begins like this is a pickle as Python and PyTorch write them."""
    return len(first_bytes) > 1 and first_bytes[0] == _PROTO and _OLDEST <= first_bytes[1] <= _NEWEST


class State(IntEnum):
    """What the allocator says of a block."""

    INACTIVE = 0
    """Free for the program's next request."""
    ACTIVE = 1
    """Held by the program."""
    PENDING_FREE = 2
    """Given back by the program, but another stream may still use it (`Tensor.record_stream`)."""


class Action(IntEnum):
    """One entry of the allocator's history."""

    ALLOC = 0
    FREE_REQUESTED = 1
    """The program gave a block back."""
    FREE_COMPLETED = 2
    """The block can be used again."""
    SEGMENT_ALLOC = 3
    """``cudaMalloc``."""
    SEGMENT_FREE = 4
    """``cudaFree``."""
    SEGMENT_MAP = 5
    """Memory mapped into an expandable segment."""
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    """A snapshot was taken; ``size_bytes`` and ``address`` are 0."""
    OOM = 8
    """Out of memory: ``size_bytes`` was asked for, ``address`` is how much the device had free."""
    OTHER = 9
    """An action that this version of profkit does not know."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """The distinct Python (and C++) stacks, innermost frame first. Stack ``code`` has the frames
    ``frames[starts[code]:starts[code + 1]]``; frame ``f`` is line ``line[f]`` of ``files[file[f]]`` in the function
    ``functions[function[f]]``. Code 0 is the empty stack: the allocator had no record."""

    starts: Int64s
    frames: Int32s
    file: Int32s
    function: Int32s
    line: Int32s
    files: tuple[str, ...]
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segments:
    """One row per piece of memory that the allocator took from a device, sorted by device and address. ``pool`` is 0
    for the common pool and otherwise numbers the private pools, such as those of CUDA graphs."""

    device: Int32s
    address: Int64s
    size_bytes: Int64s
    stream: Int64s
    is_large: Bools
    is_expandable: Bools
    pool: Int32s

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class Blocks:
    """One row per part of a segment (``segment`` is its row), sorted as those are and by address.

    ``size_bytes`` is what the part takes, ``requested_bytes`` what the program asked for (0 for a free part), and
    ``stack`` allocated it.
    """

    segment: Int32s
    address: Int64s
    size_bytes: Int64s
    requested_bytes: Int64s
    state: NDArray[np.uint8]
    stack: Int32s

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class History:
    """One row per action of the allocator, by device and in its order. ``time_ns`` is -1 if it was not recorded.

    ``size_bytes`` is what the entry says. For `ALLOC`, `FREE_REQUESTED` and `FREE_COMPLETED` that is what the program
    asked for, before rounding: in every recording at hand both frees repeat the size of their allocation, which for
    pieces still allocated equals `Blocks.requested_bytes`. For segments it is what was taken from the device or given
    back, for `OOM` what did not fit, after rounding (``CUDACachingAllocator.cpp``).
    """

    device: Int32s
    action: NDArray[np.uint8]
    address: Int64s
    size_bytes: Int64s
    stream: Int64s
    time_ns: Int64s
    stack: Int32s

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a snapshot file. ``settings`` are the allocator's, as text. ``notes`` say what was unusable."""

    segments: Segments
    blocks: Blocks
    history: History
    stacks: Stacks
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
