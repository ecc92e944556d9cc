"""The time in which the host gives the memory of large tensors back to the system.

The C library asks the system for a large block on its own and gives it back when it is freed (glibc's
``M_MMAP_THRESHOLD``), page by page. The trace has the free as a moment, and the time after it belongs to no event. If
the tensor is not made, that time is gone as well.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.timeline.intervals import Intervals, union
from profkit.trace.events import HOST, Int64s, Rows

_LARGE_BYTES = 128 << 10
"""glibc's threshold at the start of a program; it may rise later, but does not fall (mallopt(3))."""
_PAGE_BYTES, _MOST_PAGE_NS = 4096, 1_000
"""The longest that giving back a page takes: 0.25 µs for private memory, 0.7 to 1 for shared (AMD EPYC, virtual
machines, Linux 6.18). What comes later after a free is something else."""


class Frees(Struct, frozen=True):
    """Large blocks of the host's memory that are freed: the events that allocate them, and from when to when each is
    given back."""

    allocated_by: Rows
    start_ns: Int64s
    end_ns: Int64s

    @property
    def intervals(self) -> Intervals:
        return union(self.start_ns, self.end_ns)


@derived_once
def frees(facts: Facts) -> Frees:
    """Giving a block back ends at the latest with the next event of any thread."""
    events, memory = facts.trace.events, facts.memory
    freed = (memory.freed_by >= 0) & (memory.size_bytes >= _LARGE_BYTES)
    freed &= events.device_type[memory.rows] == HOST
    start_ns = events.start_ns[memory.freed_by[freed]]
    if not len(start_ns):
        return Frees(memory.rows[freed], start_ns, start_ns)
    on_host = facts.tree.depth >= 0
    edges = np.sort(np.concatenate([events.start_ns[on_host], facts.tree.end_ns[on_host]]))
    following = edges[np.searchsorted(edges, start_ns, side="right").clip(max=len(edges) - 1)]
    longest_ns = memory.size_bytes[freed] // _PAGE_BYTES * _MOST_PAGE_NS
    return Frees(memory.rows[freed], start_ns, np.minimum(following, start_ns + longest_ns).clip(min=start_ns))
