"""Who is late, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.late import find_late
from profkit.derive.launch.lateness import Reason, WaitCosts, divide_waits, find_reasons, latest_rank, weigh_lateness
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.derive.launch.table import Cause, Group, RankTable
from profkit.derive.launch.work_by_rank import measure_work_by_rank
from profkit.run.directory import CallSite
from tests.derive.launch.tables import Did, Worked, table

LOADS, COMPUTES = CallSite("data.py", 5, "load"), CallSite("train.py", 10, "train")
THREE = (Group("0", 3, (0, 1, 2)),)


def reasons_of(launch: Launch, costs: WaitCosts) -> tuple[Reason | None, ...]:
    own = measure_work_by_rank(launch)
    return find_reasons(launch, costs, own, find_late(own))


def test_a_rank_waits_for_the_last_one_beyond_the_shortest_time():
    """The transfer takes 10 µs. Rank 1 comes last, 30 µs after rank 0 and 20 after rank 2."""
    launch = match(
        [
            table(0, [Did(0, 40)], world=3, groups=THREE),
            table(1, [Did(30, 40)], world=3, groups=THREE),
            table(2, [Did(10, 40)], world=3, groups=THREE),
        ]
    )
    costs = weigh_lateness(launch)
    assert costs.transfer_ns.tolist() == [10_000]
    assert costs.waited_ns.tolist() == [30_000, 0, 20_000]
    assert costs.late_ns.tolist() == [0, 25_000, 5_000]
    assert costs.caused_ns.tolist() == [0, 22_500, 2_500]
    assert costs.exposed_ns.tolist() == [10_000, 10_000, 10_000]
    assert latest_rank(launch, costs) == 1


@pytest.mark.parametrize(
    ("begins", "late", "shares"),
    [
        ((0, 0, 0, 60), (0, 0, 0, 60), (0, 0, 0, 60)),
        ((0, 0, 40, 60), (0, 0, 40, 60), (0, 0, 20, 40)),
        ((0, 0, 60, 60), (0, 0, 60, 60), (0, 0, 30, 30)),
        ((0, 0, 0, 0, 30, 60, 90), (0, 0, 0, 0, 30, 60, 90), (0, 0, 0, 0, 10, 25, 55)),
        ((0, 60, 60, 60), (0, 0, 0, 0), (0, 0, 0, 0)),
        ((0, 1, 3, 60), (0, 0, 0, 59), (0, 0, 0, 59)),
        ((0, 0, 3, 60), (0, 0, 0, 60), (0, 0, 0, 60)),
        ((0, 40), (0, 40), (0, 40)),
    ],
    ids=["one", "two", "two equally", "three", "a majority", "on time", "late by less than a tenth", "two ranks"],
)
def test_ranks_that_are_late_together_share_the_wait(
    begins: Sequence[float], late: Sequence[float], shares: Sequence[float]
) -> None:
    """All end 10 µs after the last one begins."""
    count, ends = len(begins), max(begins) + 10
    group = (Group("0", count, tuple(range(count))),)
    launch = match([table(rank, [Did(at, ends)], world=count, groups=group) for rank, at in enumerate(begins)])
    costs = weigh_lateness(launch)
    assert (costs.late_ns / 1000).tolist() == list(late)
    assert (costs.caused_ns / 1000).tolist() == list(shares)


def test_each_wait_is_divided_among_the_ranks_that_were_missing():
    begins = (0, 0, 40, 60)
    groups = (Group("0", 4, (0, 1, 2, 3)),)
    launch = match([table(rank, [Did(at, 70)], world=4, groups=groups) for rank, at in enumerate(begins)])
    every = np.arange(4)
    waiting, late, shares = divide_waits(launch, weigh_lateness(launch), every, every)
    assert list(zip(waiting.tolist(), late.tolist(), (shares / 1000).tolist(), strict=True)) == [
        (0, 2, 20),
        (0, 3, 40),
        (1, 2, 20),
        (1, 3, 40),
        (2, 3, 20),
    ]


def test_lateness_covered_by_work_costs_nobody_time():
    """Ranks 0 and 1 stand still for the last 15 µs before rank 3 comes, when rank 2 has come already."""
    did = [Did(0, 70, waited=25), Did(0, 70, waited=25), Did(40, 70, waited=25), Did(60, 70)]
    groups = (Group("0", 4, (0, 1, 2, 3)),)
    costs = weigh_lateness(match([table(rank, [one], world=4, groups=groups) for rank, one in enumerate(did)]))
    assert costs.caused_ns.tolist() == [0, 0, 0, 15_000]


def test_time_that_a_rank_computes_is_not_a_wait():
    launch = match([table(0, [Did(0, 40, waited=15)]), table(1, [Did(30, 40, waited=4)])])
    costs = weigh_lateness(launch)
    assert costs.waited_ns.tolist() == [5_000, 0]
    assert costs.exposed_ns.tolist() == [10_000, 4_000]
    assert costs.caused_ns.tolist() == [0, 5_000]


def test_two_simultaneous_transfers_are_waited_for_once():
    first, second = [Did(0, 40), Did(5, 42, waited=2)], [Did(30, 40, waited=0), Did(32, 42)]
    costs = weigh_lateness(match([table(0, first), table(1, second)]))
    assert costs.waited_ns.tolist() == [30_000, 0, 0, 0]


def test_a_wrong_clock_changes_nothing():
    launch = match([table(0, [Did(0, 40)]), table(1, [Did(1e9 + 30, 1e9 + 40)])])
    assert weigh_lateness(launch).caused_ns.tolist() == [0, 30_000]


def test_the_cause_is_the_work_that_takes_the_late_rank_longer():
    sites = (LOADS, COMPUTES)
    usual = [Worked(20, step, Cause.INPUT, 0) for step in range(3)]
    usual += [Worked(50, step, Cause.COMPUTE, 1) for step in range(3)]
    slow = [Worked(50 if one.cause == Cause.INPUT else 55, one.step, one.cause, one.site) for one in usual]
    early = [Did(100 * i, 100 * i + 40, i) for i in range(3)]
    late = [Did(100 * i + 35, 100 * i + 40, i) for i in range(3)]
    launch = match([table(0, early, worked=usual, sites=sites), table(1, late, worked=slow, sites=sites)])
    costs = weigh_lateness(launch)
    assert reasons_of(launch, costs) == (None, Reason(Cause.INPUT, LOADS))


@pytest.mark.parametrize(("loads_us", "is_blamed"), [(24, False), (25, True)])
def test_work_that_holds_less_than_half_of_the_lateness_is_no_cause(loads_us, is_blamed):
    """Rank 1 comes 30 µs late in each step, as it began it late: loading takes it 14 or 15 µs longer than rank 0."""
    usual, slow = ([Worked(us, i, Cause.INPUT, 0) for i in range(3)] for us in (10, loads_us))
    early = [Did(100 * i, 100 * i + 40, i) for i in range(3)]
    late = [Did(100 * i + 30, 100 * i + 40, i) for i in range(3)]
    sites = (LOADS,)
    launch = match([table(0, early, worked=usual, sites=sites), table(1, late, worked=slow, sites=sites)])
    assert reasons_of(launch, weigh_lateness(launch)) == (None, Reason(Cause.INPUT, LOADS) if is_blamed else None)


def test_without_longer_work_there_is_no_cause():
    launch = match([table(0, [Did(0, 40)], worked=[Worked(50)]), table(1, [Did(30, 40)], worked=[Worked(20)])])
    assert reasons_of(launch, weigh_lateness(launch)) == (None, None)


def test_a_launch_without_joint_collectives_has_no_toll():
    launch = match([])
    costs = weigh_lateness(launch)
    assert (len(costs.caused_ns), reasons_of(launch, costs), latest_rank(launch, costs)) == (0, (), 0)


def on_one_clock(tables: Sequence[RankTable], on_device: bool = False) -> Launch:
    """The launch of ranks that say they share a clock. With ``on_device`` the collectives are kernels."""
    return match(
        [
            structs.replace(
                table,
                identity=structs.replace(table.identity, clock_offset_ns=0),
                collectives=structs.replace(table.collectives, on_device=np.full(len(table.collectives), on_device)),
            )
            for table in tables
        ]
    )


def late_to_notice(ends: Sequence[float], shift: float = 0) -> list[RankTable]:
    """Rank 2 comes last, after 50 of 60 µs. Each rank notices the end when its thread gets a CPU."""
    begins = (0, 10, 50)
    return [
        table(rank, [Did(begins[rank] + shift * rank, end + shift * rank)], world=3, groups=THREE)
        for rank, end in enumerate(ends)
    ]


def test_on_a_shared_clock_a_rank_waits_until_the_last_one_starts():
    costs = weigh_lateness(on_one_clock(late_to_notice([90, 60, 75])))
    assert costs.transfer_ns.tolist() == [10_000]
    assert costs.waited_ns.tolist() == [50_000, 40_000, 0]
    assert costs.exposed_ns.tolist() == [40_000, 10_000, 25_000]
    assert costs.caused_ns.tolist() == [0, 2_500, 42_500]


def test_on_a_shared_clock_work_after_the_start_is_not_a_wait():
    did = [Did(0, 60, waited=25), Did(0, 60, waited=5), Did(50, 60)]
    costs = weigh_lateness(on_one_clock([table(rank, [one], world=3, groups=THREE) for rank, one in enumerate(did)]))
    assert costs.waited_ns.tolist() == [15_000, 0, 0]
    assert costs.exposed_ns.tolist() == [10_000, 5_000, 10_000]


@pytest.mark.parametrize("why", ["unknown", "contradicted", "a GPU's"])
def test_without_a_trusted_clock_the_shortest_time_counts_as_the_transfer(why: str) -> None:
    """The same as above: by its own times alone rank 0 waits for 65 of its 90 µs."""
    tables = late_to_notice([90, 60, 75], shift=1_000_000 if why == "contradicted" else 0)
    launch = match(tables) if why == "unknown" else on_one_clock(tables, on_device=why == "a GPU's")
    costs = weigh_lateness(launch)
    assert costs.transfer_ns.tolist() == [25_000]
    assert costs.waited_ns.tolist() == [65_000, 25_000, 0]
