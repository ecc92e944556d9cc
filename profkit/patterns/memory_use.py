"""How much memory there is, and how much of it is in use: on each device, or on the host."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.trace.events import NONE

_FREE = 0.15
"""The share of memory that stays free for what varies from step to step, and for fragments."""


class MemoryUse(Struct, frozen=True):
    """The memory of one device, or of the host, and the most of it that was seen in use; 0 bytes means unknown.

    ``device`` is its number, `NONE` if the recording gives none. ``allocated_bytes`` is what tensors took,
    ``reserved_bytes`` that plus what PyTorch's allocator kept for later tensors. ``seen_bytes`` is what all processes
    used, by the driver's account; on the host it is what the process used, mapped files included.
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
        allocator merely keeps is free for more tensors. If tensors were not accounted for, everything taken."""
        others = max(0, self.seen_bytes - self.reserved_bytes) if self.reserved_bytes else 0
        return self.allocated_bytes + others if self.allocated_bytes else max(self.reserved_bytes, self.seen_bytes)

    @property
    def share(self) -> float:
        """The used part of all memory; 0 if unknown."""
        return self.used_bytes / self.total_bytes if self.is_known else 0.0

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether this much more would fit, variation included. False if unknown."""
        return self.is_known and self.used_bytes + size_bytes <= (1 - _FREE) * self.total_bytes


def memory_use(facts: Facts) -> MemoryUse:
    """The memory of the fullest device, or of the host if no device was used."""
    return max(memory_uses(facts), key=lambda use: use.share)


def memory_uses(facts: Facts) -> tuple[MemoryUse, ...]:
    """The memory of each device that held any, or of the host if no device was used; at least one."""
    if not facts.device.present:
        total_bytes = facts.run.host.memory_bytes if facts.run.host else 0
        return (MemoryUse(total_bytes, max((one.rss_bytes for one in facts.samples), default=0), is_host=True),)
    allocated = _peaks(facts, facts.memory.peaks, "allocated_peak_bytes")
    reserved = _peaks(facts, facts.trace.recording.reserved_bytes, "reserved_peak_bytes")
    numbers = sorted({*allocated, *reserved}) or [NONE]
    # The driver was asked about one device, and does not say which if there are several.
    seen = max((one.gpu_memory_bytes or 0 for one in facts.samples), default=0) if len(numbers) == 1 else 0
    return tuple(_use_of(facts, one, seen, allocated.get(one, 0), reserved.get(one, 0)) for one in numbers)


def _use_of(facts: Facts, device: int, seen: int, allocated: int, reserved: int) -> MemoryUse:
    """If the process may use only a part of the device, that part is all there is, and other processes do not count."""
    limit = max((one.limit_bytes for one in facts.device_memory if one.device == device), default=0)
    total, seen = (limit, 0) if limit else (_total(facts, device), seen)
    return MemoryUse(total, seen, device, allocated_bytes=allocated, reserved_bytes=reserved)


def _peaks(facts: Facts, recorded: Iterable[tuple[int, int]], column: str) -> dict[int, int]:
    """The most of each device: in the recorded steps, or before them as the allocator remembers."""
    peaks = dict(recorded)
    for one in facts.device_memory:
        peaks[one.device] = max(getattr(one, column), peaks.get(one.device, 0))
    return peaks


def _total(facts: Facts, device: int) -> int:
    """All memory of a device; that of the smallest device if the recording does not say which one it is."""
    known = [one.total_bytes for one in facts.device_memory if one.device == device]
    totals = facts.trace.recording.memory_bytes
    listed = totals[device] if 0 <= device < len(totals) else min(totals, default=0)
    return max([listed, *known])
