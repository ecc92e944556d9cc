"""Everything that one recording of a program notes about the GPU's memory; its counts are read here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profkit.collect.memory.allocator import CudaAllocator
from profkit.collect.memory.failures import FailureWatch
from profkit.collect.memory.history import LocatedHistory
from profkit.collect.program.guard import describe
from profkit.run.directory import DeviceMemorySample

_MOST_SAMPLES = 2000
"""A program may run for days. A curve of so many points is finer than any screen."""
_AT_THE_END = -1


class DeviceCounts:
    """How much PyTorch's allocator holds of each GPU at the ends of steps, by its own counts, which are never reset.

    ``samples`` cover the devices on which anything was ever held. The first error ends the reading, and becomes the
    ``note``.
    """

    def __init__(self, allocator: CudaAllocator) -> None:
        self.samples: list[DeviceMemorySample] = []
        self.note: str | None = None
        self._allocator = allocator

    def read(self, step: int = _AT_THE_END) -> None:
        if self.note is not None or not self._allocator.is_used:
            return
        if len(self.samples) >= _MOST_SAMPLES and step != _AT_THE_END:
            return
        try:
            for device in self._allocator.devices():
                counts = self._allocator.counts(device)
                if _bytes(counts, "reserved_bytes", "peak"):
                    sizes = self._allocator.total_bytes(device), self._allocator.limit_bytes(device)
                    self.samples.append(_sample(step, device, sizes, counts))
        except Exception as error:  # the calls are private, and another allocator may be plugged in
            self.note = f"the GPU's memory was not read: {describe(error)}"


class MemoryWatch:
    """Its parts are independent. None raises, and none does anything before the program uses CUDA."""

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


def _sample(step: int, device: int, sizes: tuple[int, int], counts: Mapping[str, Any]) -> DeviceMemorySample:
    return DeviceMemorySample(
        step=step,
        device=device,
        total_bytes=sizes[0],
        limit_bytes=sizes[1],
        allocated_bytes=_bytes(counts, "allocated_bytes", "current"),
        allocated_peak_bytes=_bytes(counts, "allocated_bytes", "peak"),
        reserved_bytes=_bytes(counts, "reserved_bytes", "current"),
        reserved_peak_bytes=_bytes(counts, "reserved_bytes", "peak"),
        inactive_bytes=_bytes(counts, "inactive_split_bytes", "current"),
        retries=int(counts.get("num_alloc_retries", 0)),
        failures=int(counts.get("num_ooms", 0)),
    )


def _bytes(counts: Mapping[str, Any], name: str, which: str) -> int:
    """For small and large blocks together."""
    return int(counts.get(name, {}).get("all", {}).get(which, 0))
