"""Where the time of single ranks goes, in figures for a page about each. A small launch gets a page for all ranks, a
large one for those that matter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.launch.lateness import WaitCosts, divide_waits
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.table import Cause, RankTable
from profkit.derive.launch.work_by_rank import step_index
from profkit.findings.values import CallSummary, Location, OwnTime, RankDetails, RankStep, RankWait
from profkit.trace.events import NONE, Bools, Float64s, Int64s
from profkit.trace.statistics import distinct, distinct_rows, median, occurrences

MOST_DETAILED = 64
"""With more ranks, only `EACH_WAY` get details that others wait for longest, and as many that wait longest."""
EACH_WAY = 8
MOST_STEPS = 32
MOST_PEERS = 8
MOST_CALLS = 5
"""A rank's page shows no more: what comes after costs next to nothing, and there are many such pages."""


class Costs(Struct, frozen=True):
    """By rank and step: the rank's share of the others' waits, by how much it is late, how long it waits, how long
    communication holds it up, and whether it took part in the step (``present``). ``numbers`` are the steps' numbers.

    A late rank is late in each of its groups, such as the tensor-parallel one and then the data-parallel one. So
    ``caused_ns`` and ``late_ns`` count only the group in which they are longest."""

    numbers: Int64s
    caused_ns: Int64s
    late_ns: Int64s
    waited_ns: Int64s
    exposed_ns: Int64s
    present: Bools

    @property
    def steps_per_column(self) -> int:
        """How many steps share a column of a rank's page."""
        return -(-len(self.numbers) // MOST_STEPS) or 1

    def mean_ns(self, which: Int64s, at: int) -> int:
        """The mean over the steps that the rank took part in."""
        own = which[at][self.present[at]]
        return int(own.mean()) if len(own) else 0


def add_up(launch: Launch, wait_costs: WaitCosts) -> Costs:
    """Add up the costs of waiting by rank and step."""
    numbers = distinct(launch.joint.step[launch.joint.step >= 0])
    step = launch.joint.step[launch.parts.joint]
    inside = step >= 0
    place = launch.parts.table[inside], np.searchsorted(numbers, step[inside])
    shape = len(launch.tables), len(numbers)

    def by_step(cost_ns: Int64s) -> Int64s:
        found = np.zeros(shape, np.int64)
        np.add.at(found, place, cost_ns[inside])
        return found

    groups = _groups_of_ranks(launch)[launch.joint.group[launch.parts.joint[inside]]]
    first, in_group = distinct_rows(*place, groups) if inside.any() else (place[0], place[0])

    def by_worst_group(cost_ns: Int64s) -> Int64s:
        found = np.zeros(shape, np.int64)
        summed = np.bincount(in_group, cost_ns[inside], len(first)).astype(np.int64)
        np.maximum.at(found, (place[0][first], place[1][first]), summed)
        return found

    present = np.zeros(shape, dtype=bool)
    present[place] = True
    for row, table in zip(present, launch.tables, strict=True):
        at, known = step_index(numbers, table.steps.number)
        row[at[known]] = True
    return Costs(
        numbers,
        by_worst_group(wait_costs.caused_ns),
        by_worst_group(wait_costs.late_ns),
        by_step(wait_costs.waited_ns),
        by_step(wait_costs.exposed_ns),
        present,
    )


def _groups_of_ranks(launch: Launch) -> Int64s:
    """For each group, the first group with the same ranks."""
    ranks: list[object] = [group.ranks if group.ranks is not None else at for at, group in enumerate(launch.groups)]
    return np.array([ranks.index(one) for one in ranks], dtype=np.int64)


def choose_detailed(costs: Costs) -> list[int]:
    """The tables whose ranks get details."""
    count = len(costs.present)
    if count <= MOST_DETAILED:
        return list(range(count))
    chosen: set[int] = set()
    for matrix in (costs.caused_ns, costs.waited_ns):
        total_ns = matrix.sum(axis=1)
        chosen |= {int(at) for at in np.argsort(-total_ns, kind="stable")[:EACH_WAY] if total_ns[at] > 0}
    return sorted(chosen)


def detail_ranks(launch: Launch, wait_costs: WaitCosts, costs: Costs) -> dict[int, RankDetails]:
    """The details of the chosen ranks, by their tables."""
    own = _CauseTimes.of(launch, costs.numbers)
    return {at: _details(launch, wait_costs, costs, own, at) for at in choose_detailed(costs)}


class _CauseTimes(Struct, frozen=True):
    """By rank: its mean step, over those that others share (NaN if there are none), and its own work by cause. And the
    median of that work, separately for ranks of which only collectives were recorded (True) and the others."""

    step_ns: Float64s
    cause_ns: Float64s
    median_ns: dict[bool, Float64s]

    @classmethod
    def of(cls, launch: Launch, numbers: Int64s) -> _CauseTimes:
        step_ns, cause_ns = np.full(len(launch.tables), np.nan), np.zeros((len(launch.tables), len(Cause)))
        for at, table in enumerate(launch.tables):
            _, shared = step_index(numbers, table.steps.number)
            if shared.any():
                step_ns[at] = table.steps.duration_ns[shared].mean()
                _, inside = step_index(numbers, table.work.step)
                spent = np.bincount(table.work.cause[inside], table.work.time_ns[inside], len(Cause))
                cause_ns[at] = spent / shared.sum()
        light = np.array([table.is_light for table in launch.tables], dtype=bool)
        medians = {}
        for kind in (False, True):
            alike = cause_ns[(light == kind) & ~np.isnan(step_ns)]
            medians[kind] = np.median(alike, axis=0) if len(alike) else np.zeros(len(Cause))
        return cls(step_ns, cause_ns, medians)


def _details(launch: Launch, wait_costs: WaitCosts, costs: Costs, own: _CauseTimes, at: int) -> RankDetails:
    table = launch.tables[at]
    mine = np.flatnonzero((launch.parts.table == at) & (launch.joint.step[launch.parts.joint] >= 0))
    waits_for, awaited_by = _peers(launch, wait_costs, at, max(int(costs.present[at].sum()), 1))
    called = table.collectives.step >= 0
    is_timed = not np.isnan(own.step_ns[at])
    parts = _own_times(table, costs.numbers, own, at) if is_timed else ()
    standing_ns = costs.mean_ns(costs.waited_ns, at) + costs.mean_ns(costs.exposed_ns, at)
    step_ns = int(own.step_ns[at]) if is_timed else None
    return RankDetails(
        step_ns=step_ns,
        own=parts,
        uncompared_ns=max(0, (step_ns or 0) - sum(one.time_ns for one in parts) - standing_ns),
        waits_for=waits_for,
        awaited_by=awaited_by,
        collectives=int(called.sum()) / max(len(table.steps.number), 1),
        compared=int(called[launch.parts.row[mine]].sum()) / max(int(called.sum()), 1),
        calls=tuple(_calls(launch, wait_costs, table, mine)),
        steps=tuple(_steps(table, costs, at)),
        steps_per_column=costs.steps_per_column,
        clock_behind_ns=int(launch.offset_ns[at]) if len(mine) else None,
    )


def _own_times(table: RankTable, numbers: Int64s, own: _CauseTimes, at: int) -> tuple[OwnTime, ...]:
    """The causes that take time, the longest first."""
    _, inside = step_index(numbers, table.work.step)
    time_ns, median_ns = own.cause_ns[at].astype(np.int64), own.median_ns[table.is_light]
    causes = [Cause(code) for code in np.argsort(-time_ns, kind="stable").tolist() if time_ns[code]]
    return tuple(
        OwnTime(
            cause.name.lower(),
            int(time_ns[cause]),
            int(median_ns[cause]),
            _longest_line(table, inside & (table.work.cause == cause)),
        )
        for cause in causes
    )


def _longest_line(table: RankTable, wanted: Bools) -> Location | None:
    wanted = wanted & (table.work.site >= 0) & (table.work.site < len(table.sites))
    if not wanted.any():
        return None
    time_ns = np.bincount(table.work.site[wanted], table.work.time_ns[wanted])
    return Location.of(table.sites[int(time_ns.argmax())])


def _peers(
    launch: Launch, wait_costs: WaitCosts, at: int, steps: int
) -> tuple[tuple[RankWait, ...], tuple[RankWait, ...]]:
    """The ranks that this one waits for, and those that wait for it."""
    parts = launch.parts
    inside = launch.joint.step[parts.joint] >= 0
    mine, waits = inside & (parts.table == at), inside & (wait_costs.waited_ns > 0)
    is_late = inside & (wait_costs.late_ns > 0)
    is_late[wait_costs.last] |= inside[wait_costs.last]
    _, late, waited_ns = divide_waits(launch, wait_costs, np.flatnonzero(mine & waits), np.flatnonzero(is_late))
    counted = mine & (wait_costs.caused_ns > 0)  # as in `Costs.caused_ns`
    waiting, _, kept_ns = divide_waits(launch, wait_costs, np.flatnonzero(waits), np.flatnonzero(counted))
    return (
        _longest(launch, parts.table[late], waited_ns, steps),
        _longest(launch, parts.table[waiting], kept_ns, steps),
    )


def _longest(launch: Launch, table: Int64s, waited_ns: Float64s, steps: int) -> tuple[RankWait, ...]:
    time_ns = np.rint(np.bincount(table, waited_ns, len(launch.tables))).astype(np.int64) // steps
    order = np.argsort(-time_ns, kind="stable")[:MOST_PEERS]
    return tuple(RankWait(launch.tables[at].identity.rank, int(time_ns[at])) for at in order.tolist() if time_ns[at])


def _calls(launch: Launch, wait_costs: WaitCosts, table: RankTable, mine: Int64s) -> Iterator[CallSummary]:
    """The rank's calls with the longest waits, its own and those it causes."""
    joint = launch.parts.joint[mine]
    if not len(joint):
        return
    kinds = np.stack([launch.joint.group[joint], launch.joint.operation[joint]])
    _, kind = distinct_rows(*kinds)
    _, in_step = distinct_rows(launch.joint.step[joint], kind)
    number = occurrences(in_step)
    first, call = distinct_rows(kind, number)
    costs = [
        np.bincount(call, cost[mine], len(first))
        for cost in (wait_costs.waited_ns + wait_costs.caused_ns, wait_costs.exposed_ns)
    ]
    alike = np.bincount(kind[first])
    for one in np.lexsort([-cost for cost in reversed(costs)])[:MOST_CALLS].tolist():
        rows = mine[call == one]
        group = launch.groups[int(kinds[0, first[one]])]
        yield _call(
            launch,
            wait_costs,
            table,
            rows,
            (int(number[first[one]]) + 1, int(alike[kind[first[one]]])),
            (group.description or group.name, group.size),
        )


def _call(
    launch: Launch,
    wait_costs: WaitCosts,
    table: RankTable,
    rows: Int64s,
    place: tuple[int, int],
    group: tuple[str, int],
) -> CallSummary:
    """One call, from its rows of `Launch.parts`, one for each step."""
    joint, own = launch.parts.joint[rows], launch.parts.row[rows]
    known = table.collectives.size_bytes[own]
    sites = table.collectives.site[own]
    sites = sites[(sites >= 0) & (sites < len(table.sites))]
    anybody = (
        np.bincount(launch.parts.joint, wait_costs.waited_ns)[joint] > 0
    )  # else all came at once, and nobody is last
    last = np.bincount(launch.parts.table[wait_costs.last[joint[anybody]]], minlength=1)
    code = int(launch.joint.operation[joint[0]])
    return CallSummary(
        operation=launch.texts[code] if 0 <= code < len(launch.texts) else "",
        group=group[0],
        group_size=group[1],
        size_bytes=int(median(known[known >= 0])) if (known >= 0).any() else NONE,
        number=place[0],
        alike=place[1],
        steps=len(rows),
        waited_ns=int(wait_costs.waited_ns[rows].mean()),
        caused_ns=int(wait_costs.caused_ns[rows].mean()),
        transfer_ns=int(wait_costs.transfer_ns[joint].mean()),
        exposed_ns=int(wait_costs.exposed_ns[rows].mean()),
        last_rank=launch.tables[int(last.argmax())].identity.rank if anybody.any() else NONE,
        last_steps=int(last.max()),
        location=Location.of(table.sites[int(sites[0])]) if len(sites) else None,
    )


def _steps(table: RankTable, costs: Costs, at: int) -> Iterator[RankStep]:
    """The longest step of each column."""
    place, shared = step_index(costs.numbers, table.steps.number)
    length_ns, own_ns = np.zeros(len(costs.numbers), np.int64), np.zeros(len(costs.numbers), np.int64)
    length_ns[place[shared]] = table.steps.duration_ns[shared]
    worked, inside = step_index(costs.numbers, table.work.step)
    np.add.at(own_ns, worked[inside], table.work.time_ns[inside])
    for begin in range(0, len(costs.numbers), costs.steps_per_column):
        longest = begin + int(length_ns[begin : begin + costs.steps_per_column].argmax())
        if length_ns[longest] > 0:
            row = (column[at, longest] for column in (costs.waited_ns, costs.exposed_ns, costs.caused_ns))
            yield RankStep(int(costs.numbers[longest]), int(length_ns[longest]), int(own_ns[longest]), *map(int, row))
