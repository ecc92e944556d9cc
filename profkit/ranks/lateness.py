"""Who is late, by how much, and why: what each rank's part in the joint collectives costs the others.

A collective begins when the last rank asks for it, so the shortest time that any of its ranks spent in it is the
transfer's. What a rank spent beyond that it waited for the last one, as far as its own work stood still. No clock of
one rank is compared with another's, but for messages between two (`profkit.ranks.transfers`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profkit.ranks.clocks import taken
from profkit.ranks.late import Late, usual_ns
from profkit.ranks.launch import Launch
from profkit.ranks.own_work import OwnWork, place_site
from profkit.ranks.table import Cause
from profkit.ranks.transfers import last_parts, transfer_times
from profkit.run import CallSite
from profkit.trace.events import Bools, Int64s
from profkit.trace.values import among, distinct

_MOST_EXPLAINED = 32
"""Ranks whose reason is looked for, those that cost the others most first: a report names five."""


class Toll(Struct, frozen=True):
    """What the collectives cost. Beside each of `Launch.parts`: how long others waited for it (``caused_ns``), how long
    it waited for others, and how long the transfer itself held up its work. Beside each of `Launch.joint`: how long the
    transfer took, and the row in `Launch.parts` of the rank that came last."""

    caused_ns: Int64s
    waited_ns: Int64s
    exposed_ns: Int64s
    transfer_ns: Int64s
    last: Int64s


class Reason(Struct, frozen=True):
    """What made a rank late, and at which line."""

    cause: Cause
    site: CallSite | None = None


def weigh_lateness(launch: Launch) -> Toll:
    """Of each joint collective the last rank is the one that spent the shortest time in it; it costs what the median of
    the others waited."""
    joint = launch.parts.joint
    if not len(joint):
        return Toll(joint, joint, joint, joint, joint)
    first = np.searchsorted(joint, np.arange(len(launch.joint)))
    spent_ns = taken(launch, "end_ns") - taken(launch, "start_ns")
    transfer_ns = transfer_times(launch)
    stood_ns = taken(launch, "wait_end_ns") - taken(launch, "wait_start_ns")
    of_transfer = transfer_ns[joint]
    waited_ns = np.minimum(stood_ns - of_transfer, spent_ns - of_transfer).clip(min=0)
    last = last_parts(launch)
    caused_ns = np.zeros(len(joint), dtype=np.int64)
    caused_ns[last] = _median_of_others(joint, waited_ns, last, first)
    return Toll(caused_ns, waited_ns, np.minimum(stood_ns, of_transfer), transfer_ns, last)


def _median_of_others(joint: Int64s, waited_ns: Int64s, last: Int64s, first: Int64s) -> Int64s:
    """Of each joint collective what the median of its ranks but the last one waited."""
    order = np.lexsort((np.where(np.isin(np.arange(len(joint)), last), -1, waited_ns), joint))  # the last one first
    count = np.diff(np.append(first, len(joint))) - 1
    ordered = waited_ns[order]
    low, high = first + 1 + (count - 1) // 2, first + 1 + count // 2
    middle: Int64s = (ordered[low] + ordered[high]) // 2
    return middle


def find_reasons(launch: Launch, toll: Toll, own: OwnWork, late: Late | None) -> tuple[Reason | None, ...]:
    """For each rank on what and where it worked longer than the median of the others that are not late, in the steps in
    which they waited for it; None where that shows nothing."""
    found: list[Reason | None] = [None] * len(launch.tables)
    caused_ns = np.bincount(launch.parts.table, toll.caused_ns, len(launch.tables))
    ordered = np.argsort(-caused_ns, kind="stable")[:_MOST_EXPLAINED]
    are_late = np.zeros(len(launch.tables), dtype=bool) if late is None else late.late
    for at in ordered[caused_ns[ordered] > 0].tolist():
        found[at] = _reason(launch, toll, own, are_late, at)
    return tuple(found)


def _reason(launch: Launch, toll: Toll, own: OwnWork, late: Bools, at: int) -> Reason | None:
    mine = (launch.parts.table == at) & (toll.caused_ns > 0)
    steps = distinct(launch.joint.step[launch.parts.joint[mine]])
    in_steps = among(own.steps, steps)
    if not in_steps.any():
        return None
    excess_ns = (own.place_ns[at] - usual_ns(own.place_ns, own.kind, late, at))[in_steps].sum(axis=0)
    if late[at]:  # by its own work, which a CPU of its own would not shorten
        excess_ns[[place[0] == Cause.CONTENTION for place in own.places]] = 0
    worst = int(excess_ns.argmax())
    if excess_ns[worst] <= 0 or worst >= len(own.places):
        return None
    place = own.places[worst]
    return Reason(Cause(place[0]), place_site(launch, place))


def latest_rank(launch: Launch, toll: Toll, among: Sequence[int] | None = None) -> int:
    """The index of the table, of these or of all, of the rank that costs the others most, else of the one whose steps
    take longest; 0 if there is none."""
    caused_ns = np.bincount(launch.parts.table, toll.caused_ns, len(launch.tables))
    lengths = [int((table.steps.end_ns - table.steps.start_ns).sum()) for table in launch.tables]
    return max(among or range(len(lengths)), key=lambda at: (caused_ns[at], lengths[at]), default=0)
