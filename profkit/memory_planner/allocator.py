"""A replay of PyTorch's caching allocator for CUDA: which blocks requests get, and which segments they need.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings. Sizes are multiples of 512 bytes.
Requests up to 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones from their own
segments in multiples of 2 MiB. A request gets the smallest free block that holds it. The rest of the block is split off
if it is larger than 1 MiB or, in small segments, at least 512 bytes; otherwise it counts as allocated too.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

_MIB = 1 << 20
_ROUND = 512
_SMALL = _MIB
_SMALL_SEGMENT = 2 * _MIB
_MEDIUM = 10 * _MIB
_MEDIUM_SEGMENT = 20 * _MIB
_LARGE_ROUND = 2 * _MIB
"""All of them are the allocator's, as told above."""


def round_request(size: int) -> int:
    """``1`` → ``512``, ``513`` → ``1024``."""
    return max(_ROUND, -(-size // _ROUND) * _ROUND)


def segment_for(size: int) -> int:
    """The size of the segment that a rounded request needs if no free block holds it."""
    if size <= _SMALL:
        return _SMALL_SEGMENT
    if size < _MEDIUM:
        return _MEDIUM_SEGMENT
    return -(-size // _LARGE_ROUND) * _LARGE_ROUND


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment, with its neighbours ``before`` and ``after``."""

    address: int
    size: int
    small: bool
    free: bool = False
    before: Block | None = None
    after: Block | None = None


class CachingAllocator:
    """Hands out blocks and takes them back. It keeps all segments, as it does while there is room."""

    def __init__(self) -> None:
        self.reserved_bytes = 0
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}

    def take(self, size: int) -> Block:
        """A block of at least ``size`` bytes."""
        size = round_request(size)
        small = size <= _SMALL
        free = self._free[small]
        at = bisect.bisect_left(free, (size, -1), key=lambda entry: entry[:2])
        block = free.pop(at)[2] if at < len(free) else self._new_segment(size, small)
        block.free = False
        left = block.size - size
        if left >= _ROUND if small else left > _SMALL:
            self._split(block, size)
        return block

    def give_back(self, block: Block) -> None:
        """Free the block, and merge it with its free neighbours."""
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._remove(other)
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                block = first
        self._insert(block)

    def _new_segment(self, size: int, small: bool) -> Block:
        total = segment_for(size)
        block = Block(self.reserved_bytes, total, small)  # addresses only order the segments
        self.reserved_bytes += total
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, block.small, True, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        self._insert(rest)

    def _insert(self, block: Block) -> None:
        block.free = True
        bisect.insort(self._free[block.small], (block.size, block.address, block), key=lambda entry: entry[:2])

    def _remove(self, block: Block) -> None:
        free = self._free[block.small]
        del free[bisect.bisect_left(free, (block.size, block.address), key=lambda entry: entry[:2])]
