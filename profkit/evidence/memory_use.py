"""How much memory there is, and how much of it is in use."""

from __future__ import annotations

from msgspec import Struct

from profkit.derive.facts import Facts

_FREE = 0.15
"""Of the memory, which stays free for what varies from step to step and for what lies in pieces."""


class MemoryUse(Struct, frozen=True):
    """All memory of the smallest device, of the host where none was used, and the most that was seen in use; 0 bytes
    where that is not known."""

    total_bytes: int
    used_bytes: int

    @property
    def is_known(self) -> bool:
        return bool(self.total_bytes and self.used_bytes)

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether so much more would fit besides what varies. False where that is not known."""
        return self.is_known and self.used_bytes + size_bytes <= (1 - _FREE) * self.total_bytes


def memory_use(facts: Facts) -> MemoryUse:
    if not facts.device.present:
        total_bytes = facts.run.host.memory_bytes if facts.run.host else 0
        return MemoryUse(total_bytes, max((one.rss_bytes for one in facts.samples), default=0))
    recording = facts.trace.recording
    seen = [one.gpu_memory_bytes or 0 for one in facts.samples]
    return MemoryUse(min(recording.memory_bytes, default=0), max([recording.reserved_bytes, *seen]))
