"""How long what the ranks exchange takes by itself, and since when all that take part in it have begun."""

from __future__ import annotations

import numpy as np

from profkit.ranks.clocks import message_parts, on_shared_clock, taken
from profkit.ranks.launch import Launch
from profkit.trace.events import Int64s


def transfer_times(launch: Launch) -> Int64s:
    """How long each joint collective takes once the last of its ranks has started: the shortest time that one of them
    spends in it, as the last one waits for nobody.

    Ranks that share a clock tell it more exactly: from the last start to the first end. The last rank may get no CPU at
    the end, and then spends longer in it than it takes. Both ranks of a message may, the receiver because nothing was
    sent yet, the sender because it looks later whether it is gone: there, too, it is from the later start to the
    earlier end, by the aligned clocks.
    """
    joint = launch.parts.joint
    start_ns, end_ns = aligned_times(launch)
    shortest = np.full(len(launch.joint), np.iinfo(np.int64).max)
    np.minimum.at(shortest, joint, end_ns - start_ns)
    shared = on_shared_clock(launch)
    first_end_ns = np.full(len(launch.joint), np.iinfo(np.int64).max)
    np.minimum.at(first_end_ns, joint, end_ns)
    shortest[shared] = (first_end_ns - last_starts(launch))[shared]
    sent, received = message_parts(launch)
    between_ns = np.minimum(end_ns[sent], end_ns[received]) - np.maximum(start_ns[sent], start_ns[received])
    shortest[joint[sent]] = np.minimum(shortest[joint[sent]], between_ns)
    known = np.zeros(len(launch.joint), dtype=bool)
    known[joint] = True
    transfer_ns: Int64s = np.where(known, shortest, 0).clip(min=0)
    return transfer_ns


def last_starts(launch: Launch) -> Int64s:
    """When the last rank of each joint collective started, on the first rank's clock."""
    start_ns, _ = aligned_times(launch)
    last_ns = np.full(len(launch.joint), np.iinfo(np.int64).min)
    np.maximum.at(last_ns, launch.parts.joint, start_ns)
    return last_ns


def last_parts(launch: Launch) -> Int64s:
    """Of each joint collective the part of the rank that came last: who spends the shortest time in it; of a message,
    and on a shared clock, who starts last."""
    parts = launch.parts
    start_ns, end_ns = aligned_times(launch)
    early_ns = end_ns - start_ns
    by_clock = np.concatenate([*message_parts(launch), np.flatnonzero(on_shared_clock(launch)[parts.joint])])
    early_ns[by_clock] = -start_ns[by_clock]
    order = np.lexsort((early_ns, parts.joint))
    return order[np.searchsorted(parts.joint, np.arange(len(launch.joint)))]


def aligned_times(launch: Launch) -> tuple[Int64s, Int64s]:
    """When each part began and ended, on the first rank's clock."""
    offset_ns = launch.offset_ns[launch.parts.table]
    return taken(launch, "start_ns") + offset_ns, taken(launch, "end_ns") + offset_ns
