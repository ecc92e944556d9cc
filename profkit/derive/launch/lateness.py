"""Who is late, by how much, and why: what each rank's part in the joint collectives costs the others.

A collective begins when the last rank asks for it, so the transfer takes the shortest time that any of its ranks spends
in it. The rest of a rank's time in it is a wait for the last one, if the rank's own work stands still. Times of two
ranks are compared only for messages and on a shared clock (`profkit.derive.launch.transfers`). There a rank waits until
the last one starts, and the time after that belongs to the transfer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.launch.clocks import on_shared_clock, part_column
from profkit.derive.launch.late import MOST_OF_IT, Late, usual_ns
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.table import Cause
from profkit.derive.launch.transfers import aligned_times, last_parts, last_starts, transfer_times
from profkit.derive.launch.work_by_rank import WorkByRank, place_site
from profkit.run.directory import CallSite
from profkit.trace.events import Bools, Float64s, Int64s
from profkit.trace.statistics import among, distinct

_MOST_EXPLAINED = 32
"""Ranks whose reason is sought, those that cost the others most first. A report names five."""

_LATE_FROM = 0.1
"""A rank that is missing for a smaller share of the wait is on time: ranks never come at exactly the same moment."""


class WaitCosts(Struct, frozen=True):
    """What the collectives cost.

    For each of `Launch.parts`: ``caused_ns`` is the rank's share of the others' waits, ``late_ns`` how much later than
    they it came, ``waited_ns`` how long it waited itself, and ``exposed_ns`` how long the transfer held up its work.
    For each of `Launch.joint`: ``transfer_ns`` is how long the transfer took, and ``last`` the row in `Launch.parts` of
    the rank that came last.

    ``waited_apiece`` and ``early_apiece`` divide single waits among the missing ranks (`divide_waits`): how long each
    part waited, and how long before the last rank it came. A stretch in which n ranks were missing counts as 1/n of its
    length.
    """

    caused_ns: Int64s
    late_ns: Int64s
    waited_ns: Int64s
    exposed_ns: Int64s
    transfer_ns: Int64s
    last: Int64s
    waited_apiece: Float64s
    early_apiece: Float64s


class Reason(Struct, frozen=True):
    """What makes a rank late, and at which line."""

    cause: Cause
    site: CallSite | None = None


def weigh_lateness(launch: Launch) -> WaitCosts:
    """Weigh what each rank's lateness costs the others.

    A joint collective costs the median wait of its ranks other than the last. The late ranks share this cost: each
    stretch of the wait is divided evenly among the ranks still missing then. So of two late ranks, the last one pays
    alone only for the time by which it is later than the other. This is the Shapley value of lateness (S. C.
    Littlechild and G. Owen, A Simple Expression for the Shapley Value in a Special Case, Management Science 1973, on
    what each plane pays for a runway).
    """
    joint = launch.parts.joint
    if not len(joint):
        nothing = np.zeros(0)
        return WaitCosts(joint, joint, joint, joint, joint, joint, nothing, nothing)
    transfer_ns, last = transfer_times(launch), last_parts(launch)
    early_ns, waited_ns, exposed_ns = _waits(launch, transfer_ns[joint])
    early_ns[last] = 0
    usual_ns = _median_of_others(joint, waited_ns, last)
    late_ns = usual_ns[joint] - early_ns
    late_ns[late_ns < _LATE_FROM * usual_ns[joint]] = 0
    early_ns = np.where(late_ns > 0, early_ns, waited_ns.max())  # nobody waits for ranks on time
    early_ns[last] = 0
    waited, early, usual = _apiece(joint, early_ns, waited_ns, usual_ns)
    caused_ns = np.rint((usual[joint] - early).clip(min=0)).astype(np.int64)
    return WaitCosts(caused_ns, late_ns, waited_ns, exposed_ns, transfer_ns, last, waited, early)


def _waits(launch: Launch, transfer_ns: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """For each part: how long before the last rank it came, how long it waited for it, and how long the transfer, which
    takes ``transfer_ns``, held up its work."""
    joint = launch.parts.joint
    names = ("start_ns", "end_ns", "wait_start_ns", "wait_end_ns")
    start_ns, end_ns, wait_start_ns, wait_end_ns = (part_column(launch, name) for name in names)
    stood_ns = wait_end_ns - wait_start_ns
    early_ns = end_ns - start_ns - transfer_ns  # all end together
    waited_ns = np.minimum(stood_ns - transfer_ns, early_ns).clip(min=0)
    exposed_ns = np.minimum(stood_ns, transfer_ns)
    shared = on_shared_clock(launch)[joint]
    early_ns[shared] = (last_starts(launch)[joint] - aligned_times(launch)[0])[shared]
    works_ns = (wait_start_ns - start_ns).clip(min=0)
    waited_ns[shared] = np.minimum(stood_ns, early_ns - works_ns).clip(min=0)[shared]
    exposed_ns[shared] = (stood_ns - waited_ns)[shared]
    return early_ns.clip(min=0), waited_ns, exposed_ns


def divide_waits(launch: Launch, costs: WaitCosts, waiting: Int64s, late: Int64s) -> tuple[Int64s, Int64s, Float64s]:
    """The pairs among the parts ``waiting`` and ``late``, both in order, in which one waits for the other in the same
    collective; and for how long, which is the late one's share of the wait."""
    joint = launch.parts.joint
    first, until = (np.searchsorted(joint[late], joint[waiting], side=side) for side in ("left", "right"))
    count = until - first
    mine = np.repeat(np.arange(len(waiting)), count)
    theirs = first[mine] + np.arange(len(mine)) - np.repeat(np.cumsum(count) - count, count)
    share = costs.waited_apiece[waiting[mine]] - costs.early_apiece[late[theirs]]
    waits = share > 0
    return waiting[mine[waits]], late[theirs[waits]], share[waits]


def _apiece(
    joint: Int64s, early_ns: Int64s, waited_ns: Int64s, usual_ns: Int64s
) -> tuple[Float64s, Float64s, Float64s]:
    """These times before the last rank came, with each stretch divided by the number of ranks missing then: waited and
    early times by part, usual times by joint collective."""
    parts, joints = len(joint), np.arange(len(usual_ns))
    every = np.concatenate([joint, joint, joints])
    time_ns = np.concatenate([waited_ns, early_ns, usual_ns])
    comes = np.repeat([False, True, False], [parts, parts, len(joints)])
    order = np.lexsort((~comes, time_ns, every))  # the last rank, at 0, comes first
    first = np.searchsorted(every[order], every[order])
    missing = np.cumsum(comes[order])
    missing -= missing[first] - 1
    length_ns = np.diff(time_ns[order], prepend=0)
    length_ns[first] = 0
    summed = np.cumsum(length_ns / np.append(1, missing[:-1]))
    found = np.empty(len(order))
    found[order] = summed - summed[first]
    return found[:parts], found[parts : 2 * parts], found[2 * parts :]


def _median_of_others(joint: Int64s, waited_ns: Int64s, last: Int64s) -> Int64s:
    """The median wait of each joint collective's ranks other than the last."""
    first = np.searchsorted(joint, np.arange(len(last)))
    order = np.lexsort((np.where(np.isin(np.arange(len(joint)), last), -1, waited_ns), joint))  # the last one first
    count = np.diff(np.append(first, len(joint))) - 1
    ordered = waited_ns[order]
    low, high = first + 1 + (count - 1) // 2, first + 1 + count // 2
    middle: Int64s = (ordered[low] + ordered[high]) // 2
    return middle


def find_reasons(launch: Launch, costs: WaitCosts, own: WorkByRank, late: Late | None) -> tuple[Reason | None, ...]:
    """For each rank, on what and where it worked longer than the median of the ranks on time, in the steps in which
    others waited for it; None if that shows nothing, or less than half of what the rank was late by: it may have begun
    the step late."""
    found: list[Reason | None] = [None] * len(launch.tables)
    caused_ns = np.bincount(launch.parts.table, costs.caused_ns, len(launch.tables))
    ordered = np.argsort(-caused_ns, kind="stable")[:_MOST_EXPLAINED]
    are_late = np.zeros(len(launch.tables), dtype=bool) if late is None else late.late
    for at in ordered[caused_ns[ordered] > 0].tolist():
        found[at] = _reason(launch, costs, own, are_late, at)
    return tuple(found)


def _reason(launch: Launch, costs: WaitCosts, own: WorkByRank, late: Bools, at: int) -> Reason | None:
    mine = (launch.parts.table == at) & (costs.caused_ns > 0)
    steps = distinct(launch.joint.step[launch.parts.joint[mine]])
    in_steps = among(own.steps, steps)
    if not in_steps.any():
        return None
    excess_ns = (own.place_ns[at] - usual_ns(own.place_ns, own.kind, late, at))[in_steps].sum(axis=0)
    if late[at]:  # its own work is longer, which no additional CPU would change
        excess_ns[[place[0] == Cause.CONTENTION for place in own.places]] = 0
    worst = int(excess_ns.argmax())
    if excess_ns[worst] <= 0 or worst >= len(own.places):
        return None
    if excess_ns[worst] < MOST_OF_IT * _late_in_all(launch, costs, np.flatnonzero(mine)):
        return None
    place = own.places[worst]
    return Reason(Cause(place[0]), place_site(launch, place))


def _late_in_all(launch: Launch, costs: WaitCosts, parts: Int64s) -> int:
    """By how much a rank was late in all steps in which these are its parts: once in each, where it was latest."""
    steps, number = np.unique(launch.joint.step[launch.parts.joint[parts]], return_inverse=True)
    latest_ns = np.zeros(len(steps), dtype=np.int64)
    np.maximum.at(latest_ns, number, costs.late_ns[parts])
    return int(latest_ns[steps >= 0].sum())


def latest_rank(launch: Launch, costs: WaitCosts, among: Sequence[int] | None = None) -> int:
    """The table, among these or all, of the rank that costs the others most, or else takes longest for its steps; 0 if
    there is none."""
    caused_ns = np.bincount(launch.parts.table, costs.caused_ns, len(launch.tables))
    lengths = [int(table.steps.duration_ns.sum()) for table in launch.tables]
    return max(among or range(len(lengths)), key=lambda at: (caused_ns[at], lengths[at]), default=0)
