"""How long what the ranks exchange takes by itself, and since when all that take part in it have begun."""

from __future__ import annotations

import numpy as np

from profkit.ranks.clocks import message_parts, taken
from profkit.ranks.launch import Launch
from profkit.trace.events import Int64s


def transfer_times(launch: Launch) -> Int64s:
    """How long each joint collective takes once the last of its ranks has started: the shortest time that one of them
    spends in it, as the last one waits for nobody.

    Both ranks of a message may spend longer in it than it takes, the receiver as nothing was sent yet, the sender as
    it looks later whether it is gone. It takes from the later start to the earlier end, by the aligned clocks.
    """
    joint = launch.parts.joint
    start_ns, end_ns = _times(launch)
    shortest = np.full(len(launch.joint), np.iinfo(np.int64).max)
    np.minimum.at(shortest, joint, end_ns - start_ns)
    sent, received = message_parts(launch)
    between_ns = np.minimum(end_ns[sent], end_ns[received]) - np.maximum(start_ns[sent], start_ns[received])
    shortest[joint[sent]] = np.minimum(shortest[joint[sent]], between_ns)
    known = np.zeros(len(launch.joint), dtype=bool)
    known[joint] = True
    transfer_ns: Int64s = np.where(known, shortest, 0).clip(min=0)
    return transfer_ns


def last_parts(launch: Launch) -> Int64s:
    """Of each joint collective the part of the rank that came last: who spends the shortest time in it; of a message,
    who starts later."""
    parts = launch.parts
    start_ns, end_ns = _times(launch)
    early_ns = end_ns - start_ns
    both = np.concatenate(message_parts(launch))
    early_ns[both] = -start_ns[both]
    order = np.lexsort((early_ns, parts.joint))
    return order[np.searchsorted(parts.joint, np.arange(len(launch.joint)))]


def _times(launch: Launch) -> tuple[Int64s, Int64s]:
    """When each part began and ended, on the first rank's clock."""
    offset_ns = launch.offset_ns[launch.parts.table]
    return taken(launch, "start_ns") + offset_ns, taken(launch, "end_ns") + offset_ns
