"""How far back does the allocator's history reach?"""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.trace.events import NONE
from profkit.units import format_bytes

_NOTABLE_SHARE = 0.01


def check_history(facts: Facts) -> str | None:
    """Of what is older than the history only the size is known, and a peak before it is not known at all."""
    allocator = facts.allocator
    if allocator is None or not allocator.devices:
        return None
    use = allocator.fullest
    if not any(one.has_history for one in allocator.devices):
        return (
            "the memory snapshot holds no history: what is held at its moment is known, but neither the peak nor what "
            "was freed (torch.cuda.memory._record_memory_history() records it)"
        )
    if use.older_bytes < _NOTABLE_SHARE * use.peak_bytes:
        return None
    found = allocator.allocations
    older = (found.device == use.device) & (found.made_by == NONE)
    known = int(found.size_bytes[older & np.isin(found.stack, 0, invert=True)].sum())
    lines = f"; the lines of {format_bytes(known)} of it are known nevertheless" if known else ""
    return (
        f"the history of the memory snapshot begins when {format_bytes(use.older_bytes)} were already held, as it was "
        f"switched on later or has lost its beginning (max_entries): a peak before is not known{lines}"
    )
