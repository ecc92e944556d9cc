"""How much memory there is, and how much of it is in use: of each device, or of the host."""

from __future__ import annotations

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.trace.events import NONE

_FREE = 0.15
"""Of the memory, which stays free for what varies from step to step and for what lies in pieces."""


class MemoryUse(Struct, frozen=True):
    """The memory of one device, or of the host, and the most of it that was seen in use; 0 bytes where something is not
    known.

    ``device`` is its number, `NONE` where the recording gives none. ``allocated_bytes`` is what tensors took,
    ``reserved_bytes`` that and what PyTorch's allocator kept for later ones, ``seen_bytes`` what all processes used by
    the driver's account; of the host, what the process did, with the files that it maps.
    """

    total_bytes: int = 0
    seen_bytes: int = 0
    device: int = NONE
    is_host: bool = False
    allocated_bytes: int = 0
    reserved_bytes: int = 0

    @property
    def where(self) -> str:
        return "the process" if self.is_host else "the GPU" if self.device == NONE else f"GPU {self.device}"

    @property
    def is_known(self) -> bool:
        return bool(self.total_bytes and self.used_bytes)

    @property
    def used_bytes(self) -> int:
        """What nothing else could have had at the peak: tensors, and what others than PyTorch's allocator use. What the
        allocator only keeps is free for more tensors. Without an account of tensors, all that is taken."""
        others = max(0, self.seen_bytes - self.reserved_bytes) if self.reserved_bytes else 0
        return self.allocated_bytes + others if self.allocated_bytes else max(self.reserved_bytes, self.seen_bytes)

    @property
    def share(self) -> float:
        """In use, of all; 0 where that is not known."""
        return self.used_bytes / self.total_bytes if self.is_known else 0.0

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether so much more would fit besides what varies. False where that is not known."""
        return self.is_known and self.used_bytes + size_bytes <= (1 - _FREE) * self.total_bytes


def memory_use(facts: Facts) -> MemoryUse:
    """That of the fullest device, of the host where none was used."""
    return max(memory_uses(facts), key=lambda use: use.share)


def memory_uses(facts: Facts) -> tuple[MemoryUse, ...]:
    """That of each device on which memory was taken, of the host where none was used; at least one."""
    if not facts.device.present:
        total_bytes = facts.run.host.memory_bytes if facts.run.host else 0
        return (MemoryUse(total_bytes, max((one.rss_bytes for one in facts.samples), default=0), is_host=True),)
    allocated, reserved = _allocated(facts), _reserved(facts)
    numbers = sorted({*allocated, *reserved}) or [NONE]
    # The driver was asked about one device, and does not say which of several.
    seen = max((one.gpu_memory_bytes or 0 for one in facts.samples), default=0) if len(numbers) == 1 else 0
    return tuple(_use_of(facts, one, seen, allocated.get(one, 0), reserved.get(one, 0)) for one in numbers)


def _use_of(facts: Facts, device: int, seen: int, allocated: int, reserved: int) -> MemoryUse:
    """Where the process may have a part of the device alone, that is all there is, and others do not count."""
    limit = max((one.limit_bytes for one in facts.device_memory if one.device == device), default=0)
    total, seen = (limit, 0) if limit else (_total(facts, device), seen)
    return MemoryUse(total, seen, device, allocated_bytes=allocated, reserved_bytes=reserved)


def _allocated(facts: Facts) -> dict[int, int]:
    """The most that tensors took of each device: in the recorded steps, or before them as the allocator remembers."""
    peaks = dict(facts.memory.peaks)
    for one in facts.device_memory:
        peaks[one.device] = max(one.allocated_peak_bytes, peaks.get(one.device, 0))
    return peaks


def _reserved(facts: Facts) -> dict[int, int]:
    """The most that the allocator held of each device."""
    peaks = dict(facts.trace.recording.reserved_bytes)
    for one in facts.device_memory:
        peaks[one.device] = max(one.reserved_peak_bytes, peaks.get(one.device, 0))
    return peaks


def _total(facts: Facts, device: int) -> int:
    """All memory of a device; of the smallest where the recording does not say which device it is."""
    told = [one.total_bytes for one in facts.device_memory if one.device == device]
    totals = facts.trace.recording.memory_bytes
    listed = totals[device] if 0 <= device < len(totals) else min(totals, default=0)
    return max([listed, *told])

