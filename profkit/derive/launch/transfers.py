"""How long each exchange takes by itself, and when the last of its ranks starts."""

from __future__ import annotations

import numpy as np

from profkit.derive.launch.clocks import message_parts, on_shared_clock, part_column
from profkit.derive.launch.launch import Launch
from profkit.trace.events import Int64s


def transfer_times(launch: Launch) -> Int64s:
    """How long each joint collective takes once its last rank has started: the shortest time that a rank spends in it,
    because the last one waits for nobody.

    On a shared clock it is the time from the last start to the first end, which is more exact: a last rank that gets no
    CPU at the end spends longer in the collective than it takes. Messages are measured like that too, on the aligned
    clocks, because both ranks may spend longer: the receiver if nothing was sent yet, the sender if it checks late
    whether the message is gone.
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
    """The part of each joint collective's last rank: the one that spends the shortest time in it, or for messages and
    on a shared clock, the one that starts last."""
    parts = launch.parts
    start_ns, end_ns = aligned_times(launch)
    early_ns = end_ns - start_ns
    by_clock = np.concatenate([*message_parts(launch), np.flatnonzero(on_shared_clock(launch)[parts.joint])])
    early_ns[by_clock] = -start_ns[by_clock]
    order = np.lexsort((early_ns, parts.joint))
    return order[np.searchsorted(parts.joint, np.arange(len(launch.joint)))]


def aligned_times(launch: Launch) -> tuple[Int64s, Int64s]:
    """The start and end of each part, on the first rank's clock."""
    offset_ns = launch.offset_ns[launch.parts.table]
    return part_column(launch, "start_ns") + offset_ns, part_column(launch, "end_ns") + offset_ns
