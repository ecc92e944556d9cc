"""How much of each collective's transfer held up a rank's own work, without waits for late ranks, and what a message
costs however small it is."""

from __future__ import annotations

from functools import reduce

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.launch.lateness import weigh_lateness
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.table import Cause, Collectives, RankTable
from profkit.derive.launch.work_by_rank import step_index
from profkit.patterns.averaging.exchanged import own_number, own_table, with_operation
from profkit.trace.events import NONE, Bools, Float64s, Int64s
from profkit.trace.statistics import distinct

_SLOW_LINK = 1.25
"""Bytes per nanosecond of 10 Gbit Ethernet. What takes longer, as one rank sees it, may as well be a wait."""

_APART = 4
"""Sizes that differ by less than this factor do not tell a slope from noise."""
_HALF_BYTES = 1 << 18
"""A message of which half the time is latency (Hockney's half-performance length), if the recording does not tell.
Between two processes of one machine gloo takes 0.45 ms plus 1.1 ns per byte (torch 2.13, two hyperthreads), which makes
400 kB. Less is assumed here, so that less of a message's time counts as latency."""


class Exposed(Struct, frozen=True):
    """Columns over the ranks' parts in collectives: the rank's place in ``tables``, the row in its table, the joint
    collective, how long its transfer took, and how much of that the rank stood still. Unless it ``is_whole``, one
    rank's view is all there is, and ``joint`` is `NONE`."""

    tables: tuple[RankTable, ...]
    is_whole: bool
    table: Int64s
    row: Int64s
    joint: Int64s
    transfer_ns: Int64s
    exposed_ns: Int64s

    def column(self, name: str) -> Int64s:
        """This column of the tables' collectives."""
        values = np.zeros(len(self.row), dtype=np.int64)
        for number, table in enumerate(self.tables):
            mine = self.table == number
            values[mine] = getattr(table.collectives, name)[self.row[mine]]
        return values


class PerStep(Struct, frozen=True):
    """By rank and step, over the steps that all ranks recorded: the length of the step, and how much of it the rank
    computed."""

    number: Int64s
    length_ns: Float64s
    computed_ns: Float64s


@derived_once
def find_exposed(facts: Facts) -> Exposed:
    """For the whole launch if all of its ranks were recorded whole, else for this rank alone."""
    launch = facts.launch
    if launch is not None and len(launch.joint) and not any(table.is_light for table in launch.tables):
        complete = _complete(launch)
        if complete.any():
            return _of_launch(launch, complete)
    return find_exposed_of(own_table(facts))


def latency_ns(facts: Facts, rows: Int64s) -> float | None:
    """What each of this rank's messages costs apart from its bytes; None if no size is known.

    Time is latency plus bytes over bandwidth (Hockney, The communication challenge for MPP, Parallel Computing 1994):
    the least-squares line through the messages that waited for no other rank. If there are none, it is the line through
    the shortest message of the smallest size and of the largest, as longer ones may contain waits. If all have about
    one size, latency is a share of the time.
    """
    taken = own_table(facts).collectives
    transfer_ns, is_alone = _by_themselves(facts)
    rows = rows[taken.size_bytes[rows] > 0]
    if not len(rows):
        return None
    has_alone = bool(is_alone[rows].any())
    rows = rows[is_alone[rows]] if has_alone else rows
    size, time_ns = taken.size_bytes[rows], transfer_ns[rows].astype(np.float64)
    least, most = int(size.min()), int(size.max())
    if most < _APART * least:
        return float(time_ns.mean() if has_alone else time_ns.min()) / (1 + most / _HALF_BYTES)
    if not has_alone:
        size, time_ns = np.array([least, most]), np.array([time_ns[size == one].min() for one in (least, most)])
    slope = max(0.0, float(np.cov(size, time_ns)[0, 1] / np.var(size, ddof=1)))
    return max(0.0, float(time_ns.mean() - slope * size.mean()))


def _by_themselves(facts: Facts) -> tuple[Int64s, Bools]:
    """How long each of this rank's collectives took, and whether that excludes waits for others."""
    taken, exposed = own_table(facts).collectives, find_exposed(facts)
    took_ns, is_alone = taken.end_ns - taken.start_ns, _follows_another(taken)
    if exposed.is_whole:
        mine = exposed.table == own_number(facts, exposed.tables)
        took_ns[exposed.row[mine]], is_alone[exposed.row[mine]] = exposed.transfer_ns[mine], True
    return took_ns, is_alone


def _follows_another(taken: Collectives) -> Bools:
    """Which collectives this rank began after one of the same group that it waited for, within less time than either of
    them takes. All ranks leave a collective together, and there is no time to fall behind until the next."""
    follows = np.zeros(len(taken), dtype=bool)
    for group in distinct(taken.group):
        mine = np.flatnonzero(taken.group == group)
        before, after = mine[:-1], mine[1:]
        pause_ns = taken.issue_ns[after] - taken.wait_end_ns[before]
        took_ns = np.minimum((taken.end_ns - taken.start_ns)[before], (taken.end_ns - taken.start_ns)[after])
        follows[after] = taken.waited[before] & (pause_ns >= 0) & (pause_ns < took_ns)
    return follows


def _of_launch(launch: Launch, complete: Bools) -> Exposed:
    """A collective's transfer takes the shortest time of all ranks in it, as the last one waits for nobody."""
    costs, parts = weigh_lateness(launch), launch.parts
    mine = complete[parts.joint]
    return Exposed(
        launch.tables,
        True,
        parts.table[mine],
        parts.row[mine],
        parts.joint[mine],
        costs.transfer_ns[parts.joint][mine],
        costs.exposed_ns[mine],
    )


def find_exposed_of(table: RankTable) -> Exposed:
    """What one rank alone can tell."""
    taken = table.collectives
    row = np.arange(len(taken))
    transfer_ns = _most_of_transfer(table)
    stood_ns = np.minimum(taken.wait_end_ns - taken.wait_start_ns, transfer_ns)
    return Exposed(
        (table,), False, np.zeros(len(row), dtype=np.int64), row, np.full(len(row), NONE), transfer_ns, stood_ns
    )


def _complete(launch: Launch) -> Bools:
    """Which collectives were recorded in all ranks of their group: the last one may be missing from some."""
    world = launch.world_size
    sizes = np.array([*(group.size if group.size > 0 else world for group in launch.groups), world])
    return (launch.joint.members >= sizes[launch.joint.group]) & (launch.joint.members > 1)


def _most_of_transfer(table: RankTable) -> Int64s:
    """The longest that each collective's transfer may have taken, as one rank sees it; 0 if its size is unknown."""
    taken = table.collectives
    took_ns = np.minimum(taken.end_ns - taken.start_ns, _over_slow_link_ns(table))
    found = np.zeros(len(taken), dtype=np.int64)
    kind = taken.operation * (len(table.groups) + 2) + taken.group + 1
    for one in distinct(kind[taken.size_bytes > 0]).tolist():
        mine = np.flatnonzero((kind == one) & (taken.size_bytes > 0))
        found[mine] = np.minimum(took_ns[mine], _shortest_comparable(taken, mine))
    return found


def _over_slow_link_ns(table: RankTable) -> Int64s:
    taken = table.collectives
    sizes = np.array([max(group.size, 2) for group in table.groups] + [2], dtype=np.float64)[taken.group]
    gathers, reduces = (with_operation(table, name) for name in ("all_gather", "all_reduce"))
    times = np.where(gathers, sizes - 1, np.where(reduces, 2 * (sizes - 1) / sizes, 1.0))
    moved = taken.size_bytes.clip(min=0).astype(np.float64) * times
    return (moved / _SLOW_LINK).clip(max=2.0**62).astype(np.int64)


def _shortest_comparable(taken: Collectives, rows: Int64s) -> Int64s:
    """The shortest of these collectives with at least as many bytes, or what a smaller one would take with as many: the
    time per byte falls with a message's size (Hockney, 1994)."""
    order = rows[np.argsort(taken.size_bytes[rows], kind="stable")]
    size = taken.size_bytes[order].astype(np.float64)
    took_ns = (taken.end_ns - taken.start_ns)[order].astype(np.float64)
    first = np.searchsorted(size, size)
    larger = np.minimum.accumulate(took_ns[::-1])[::-1][first]
    smaller = np.minimum.accumulate(took_ns / size) * size
    found = np.zeros(len(rows), dtype=np.int64)
    found[np.argsort(taken.size_bytes[rows], kind="stable")] = np.minimum(larger, smaller).astype(np.int64)
    return found


def measure_steps(exposed: Exposed) -> PerStep:
    """The steps that all ranks recorded."""
    tables = exposed.tables
    number = reduce(np.intersect1d, [table.steps.number for table in tables])
    length, computed = (np.zeros((len(tables), len(number))) for _ in range(2))
    for at, table in enumerate(tables):
        index, known = step_index(number, table.steps.number)
        length[at, index[known]] = table.steps.duration_ns[known]
        index, known = step_index(number, table.work.step)
        known &= table.work.cause == Cause.COMPUTE
        np.add.at(computed[at], index[known], table.work.time_ns[known])
    return PerStep(number, length, computed)


def add_up(exposed: Exposed, steps: PerStep, time_ns: Int64s, wanted: Bools) -> Float64s:
    """How much the wanted parts take of each rank's steps."""
    found = np.zeros_like(steps.length_ns)
    index, known = step_index(steps.number, exposed.column("step"))
    mine = known & wanted
    np.add.at(found, (exposed.table[mine], index[mine]), time_ns[mine])
    return found
