"""Aligning the clocks of the ranks: a collective ends at the same time for all of its ranks.

A message does not, because its sender may check much later whether it is gone. But it arrives after it was sent. So for
ranks that only exchange messages, those in each direction bound the clocks' difference, as in Duda, Harrus, Haddad and
Bernard, Estimating Global Time in Distributed Systems (1987).

A clock may be wrong by any amount, from a microsecond to a day. Its drift within the seconds of a recording is smaller
than the time a thread takes to notice that a collective is over, so one offset per rank is enough.

Ranks that profkit recorded on one host share a clock, and their recordings say so. That is believed unless a collective
contradicts it, because threads without a CPU notice the end of a collective milliseconds apart.
"""

from __future__ import annotations

import numpy as np
from msgspec import structs

from profkit.derive.launch.launch import Joint, Launch, Parts
from profkit.derive.launch.subgroups import FOR_ALL, TOLERATED_NS
from profkit.trace.events import Bools, Int64s
from profkit.trace.statistics import distinct, median

_MOST_APART_NS = 1 << 62
"""A clock that counts from 1970 beside one that counts from the machine's start differ by less."""


def align_clocks(launch: Launch) -> Launch:
    """The launch with the offsets of its clocks, and its joint collectives in order of time."""
    offset_ns = _offsets(launch)
    parts = launch.parts
    start_ns = part_column(launch, "start_ns") + offset_ns[parts.table]
    first_ns = np.full(len(launch.joint), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, parts.joint, start_ns)
    order = np.argsort(first_ns, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    joint = Joint(**{name: getattr(launch.joint, name)[order] for name in Joint.__struct_fields__})
    by_joint = np.lexsort((parts.table, place[parts.joint]))
    sorted_parts = Parts(place[parts.joint][by_joint], parts.table[by_joint], parts.row[by_joint])
    return structs.replace(launch, joint=joint, parts=sorted_parts, offset_ns=offset_ns)


def part_column(launch: Launch, column: str) -> Int64s:
    """A column of the ranks' own collectives, one value for each part."""
    found = np.zeros(len(launch.parts), dtype=np.int64)
    for at, table in enumerate(launch.tables):
        mine = launch.parts.table == at
        found[mine] = getattr(table.collectives, column)[launch.parts.row[mine]]
    return found


def is_message(launch: Launch) -> Bools:
    """Which joint collectives are messages from one rank to another."""
    return np.array([group.is_message for group in launch.groups] + [False], dtype=bool)[launch.joint.group]


def runs_for_all(launch: Launch) -> Bools:
    """Which joint collectives cannot end on any rank before they have begun on all."""
    by_operation = np.array([*(text in FOR_ALL for text in launch.texts), False], dtype=bool)
    return by_operation[launch.joint.operation]


def on_shared_clock(launch: Launch) -> Bools:
    """Which joint collectives ran on CPUs of ranks that share a clock, so that their times can be compared.

    A GPU's times do not count: their conversion to the host's clock has an error as long as a short transfer.
    """
    is_given = [_given_offset(launch, at) == offset_ns for at, offset_ns in enumerate(launch.offset_ns)]
    apart = ~np.array(is_given, dtype=bool)[launch.parts.table] | part_column(launch, "on_device").astype(bool)
    return runs_for_all(launch) & ~(np.bincount(launch.parts.joint, apart, len(launch.joint)) > 0)


def message_parts(launch: Launch) -> tuple[Int64s, Int64s]:
    """For each message, the sender's part and the receiver's."""
    parts = launch.parts
    mine = np.flatnonzero(is_message(launch)[parts.joint])
    sends = np.zeros(len(mine), dtype=bool)
    for at, table in enumerate(launch.tables):
        here = parts.table[mine] == at
        sends[here] = table.sends[parts.row[mine[here]]]
    ordered = mine[np.lexsort((~sends, parts.joint[mine]))]
    _, first, count = np.unique(parts.joint[ordered], return_index=True, return_counts=True)
    two = first[count == 2]
    return ordered[two], ordered[two + 1]


def _offsets(launch: Launch) -> Int64s:
    """The offset of each rank to the first one's clock: that of a shared clock if the recordings say so, else the
    median difference of the ends of collectives, from the first rank outwards. A rank that shares no collective with
    any of these keeps its own clock."""
    parts, end_ns = launch.parts, part_column(launch, "end_ns")
    offset_ns = np.zeros(len(launch.tables), dtype=np.int64)
    known = np.zeros(len(launch.tables), dtype=bool)
    known[:1] = True
    for at in range(1, len(launch.tables)):
        given_ns = _given_offset(launch, at)
        if given_ns is not None and _fits(launch, at, given_ns):
            offset_ns[at], known[at] = given_ns, True
    while True:
        reached = _offsets_by_ends(launch, end_ns + offset_ns[parts.table], known)
        reached = reached or _offsets_by_messages(launch, offset_ns, known)
        if not reached:
            return offset_ns
        for at, difference_ns in reached.items():
            offset_ns[at], known[at] = difference_ns, True


def _fits(launch: Launch, at: int, offset_ns: int) -> bool:
    """Whether the rank shares collectives on the CPU with the first one, and with this offset none of them ends on one
    rank before it has begun on the other."""
    parts = launch.parts
    wanted = runs_for_all(launch)[parts.joint] & ~part_column(launch, "on_device").astype(bool)
    first, own = (np.flatnonzero(wanted & (parts.table == table)) for table in (0, at))
    shared = np.intersect1d(parts.joint[first], parts.joint[own])
    first, own = (rows[np.isin(parts.joint[rows], shared)] for rows in (first, own))
    start_ns, end_ns = part_column(launch, "start_ns"), part_column(launch, "end_ns")
    ends_early = np.minimum(end_ns[first] - start_ns[own] - offset_ns, end_ns[own] + offset_ns - start_ns[first])
    return bool(len(own) and (ends_early >= -TOLERATED_NS).all())


def _offsets_by_ends(launch: Launch, end_ns: Int64s, known: Bools) -> dict[int, int]:
    """Offsets of ranks that are still unknown and share a collective with known ones."""
    parts = launch.parts
    together = ~is_message(launch)[parts.joint]
    mine = known[parts.table] & together
    latest = np.full(len(launch.joint), np.iinfo(np.int64).min)
    np.maximum.at(latest, parts.joint[mine], end_ns[mine])
    waiting = np.flatnonzero(~known[parts.table] & together & (latest[parts.joint] > np.iinfo(np.int64).min))
    difference = latest[parts.joint[waiting]] - end_ns[waiting]
    table = parts.table[waiting]
    return {at: int(median(difference[table == at])) for at in distinct(table).tolist()}


def _offsets_by_messages(launch: Launch, offset_ns: Int64s, known: Bools) -> dict[int, int]:
    """Offsets of ranks that share only messages with known ones: what the recordings say about their clocks if it lies
    within the bounds that the messages set, else the middle of the bounds, or the only bound."""
    source, target = message_parts(launch)
    sender, receiver = launch.parts.table[source], launch.parts.table[target]
    sent_ns = part_column(launch, "start_ns")[source] + offset_ns[sender]
    received_ns = part_column(launch, "end_ns")[target] + offset_ns[receiver]
    reached: dict[int, int] = {}
    for at in np.flatnonzero(~known).tolist():
        to, back = known[sender] & (receiver == at), known[receiver] & (sender == at)
        least_ns = [int(one.max()) for one in [(sent_ns - received_ns)[to]] if len(one)]
        most_ns = [int(one.min()) for one in [(received_ns - sent_ns)[back]] if len(one)]
        if bounds := [*least_ns, *most_ns]:
            reached[at] = sum(bounds) // len(bounds)
            given_ns = _given_offset(launch, at)
            if given_ns is not None and max([given_ns, *least_ns]) == given_ns == min([given_ns, *most_ns]):
                reached[at] = given_ns
    return reached


def _given_offset(launch: Launch, at: int) -> int | None:
    """The rank's offset to the first one's clock as the recordings give it, 0 on the same host; None if they do not, or
    if no two clocks can be that far apart."""
    first, own = (launch.tables[one].identity.clock_offset_ns for one in (0, at))
    if first is None or own is None or abs(own - first) > _MOST_APART_NS:
        return None
    return own - first
