"""From when to when memory is live, and how much of it at once."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.trace.events import Int64s

NEVER_NS = int(np.iinfo(np.int64).max)
"""The time of a free that the recording does not see."""


def lifetimes(facts: Facts) -> tuple[Int64s, Int64s]:
    """When each allocation of the facts' memory was made, and when it was freed."""
    memory, start_ns = facts.memory, facts.trace.events.start_ns
    return start_ns[memory.rows], np.where(memory.freed_by >= 0, start_ns[memory.freed_by], NEVER_NS)


def live_bytes(made_ns: Int64s, freed_ns: Int64s, size: Int64s) -> tuple[Int64s, Int64s]:
    """The moments at which something is made or freed, in order, and how much is live after each."""
    times = np.concatenate([freed_ns, made_ns])  # what is freed at a moment makes room for what is made then
    change = np.concatenate([-size, size])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(change[order])
