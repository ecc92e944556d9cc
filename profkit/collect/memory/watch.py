"""All that is recorded of the GPU's memory in one recording of a program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from profkit.collect.memory.allocator import CudaAllocator
from profkit.collect.memory.counts import DeviceCounts
from profkit.collect.memory.failures import FailureWatch
from profkit.collect.memory.history import LocatedHistory


class MemoryWatch:
    """Its parts act for themselves; none of them raises, and none does anything before the program uses CUDA."""

    def __init__(self, directory: Path, is_user: Mapping[str, bool], allocator: CudaAllocator | None = None) -> None:
        allocator = allocator or CudaAllocator()
        self.counts = DeviceCounts(allocator)
        self.history = LocatedHistory(allocator, directory)
        self.failures = FailureWatch(allocator, directory, is_user)

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be recorded, and why."""
        counted = () if self.counts.note is None else (self.counts.note,)
        return (*counted, *self.history.notes, *self.failures.notes)

    def end(self) -> None:
        """Leave the program's allocator alone."""
        self.history.drop()
        self.failures.end()
