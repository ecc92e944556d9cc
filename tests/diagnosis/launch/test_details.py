"""Where the time of single ranks goes, on handwritten launches; times in microseconds."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.derive.launch.lateness import weigh_lateness
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import Staging
from profkit.derive.launch.table import Cause
from profkit.diagnosis.launch.details import EACH_WAY, MOST_DETAILED, MOST_PEERS, MOST_STEPS, Costs, choose_detailed
from profkit.diagnosis.launch.summary import summarise
from profkit.findings.values import CallSummary, LaunchSummary, Location, OwnTime, RankDetails, RankStep, RankWait
from tests.derive.launch.launches import SITES, Act, both, end_step, launch_of, work

US = 1_000
TRANSFERS = {"grads": 10.0, "norm": 2.0}


def _rank(own: float, count: int, loading: float = 0.0, between: float = 5.0) -> list[Act]:
    """Steps with loading, work, a collective, more work and another collective."""
    acts: list[Act] = []
    for step in range(count):
        acts += [work(loading, Cause.INPUT, 2)] if loading else []
        acts += [work(own), *both(f"grads#{2 * step}")]
        acts += [work(between, site=1), *both(f"grads#{2 * step + 1}"), end_step()]
    return acts


def _summary(launch: Launch) -> LaunchSummary:
    return summarise(launch, weigh_lateness(launch), Staging(), [None] * len(launch.tables))


def _details(launch: Launch, at: int) -> RankDetails:
    details = _summary(launch).ranks[at].details
    assert details is not None
    return details


TWO_LATE = [_rank(30, 4), _rank(30, 4, loading=40), _rank(50, 4, between=15)]
"""In the first exchange of each step ranks 1 and 2 are 40 µs and 20 µs later than rank 0, in the second rank 2 is 10 µs
later than both."""


def test_the_mean_step_goes_to_own_work_transfers_and_waits() -> None:
    summary = _summary(launch_of(TWO_LATE, TRANSFERS))
    first, loading, _ = summary.ranks
    step_ns = (70 + 10 + 15 + 10) * US
    assert (first.waited_ns, first.exposed_ns, first.caused_ns) == ((40 + 10) * US, 20 * US, 0)
    assert first.details is not None
    assert loading.details is not None
    assert (first.details.step_ns, loading.details.step_ns) == (step_ns, step_ns)
    assert (first.details.uncompared_ns, loading.details.uncompared_ns) == (0, 0)
    assert first.details.own == (OwnTime("compute", 35 * US, 35 * US, Location.of(SITES[0])),)
    assert loading.details.own == (
        OwnTime("input", 40 * US, 0, Location.of(SITES[2])),
        OwnTime("compute", 35 * US, 35 * US, Location.of(SITES[0])),
    )
    for one in summary.ranks:
        assert one.details is not None
        own_ns = sum(part.time_ns for part in one.details.own)
        assert own_ns + one.waited_ns + one.exposed_ns + one.details.uncompared_ns == one.details.step_ns


def test_a_rank_knows_whom_it_waits_for_and_who_waits_for_it() -> None:
    launch = launch_of(TWO_LATE, TRANSFERS)
    first, loading, last = (_details(launch, at) for at in range(3))
    assert first.waits_for == (RankWait(1, (20 + 10) * US), RankWait(2, (10 + 10) * US))
    assert first.awaited_by == ()
    assert loading.waits_for == (RankWait(2, 10 * US),)
    assert loading.awaited_by == (RankWait(0, 30 * US), RankWait(2, 20 * US))
    assert last.waits_for == (RankWait(1, 20 * US),)
    assert last.awaited_by == (RankWait(0, 20 * US), RankWait(1, 10 * US))


def test_the_waits_for_single_ranks_add_up() -> None:
    for one in _summary(launch_of(TWO_LATE, TRANSFERS)).ranks:
        assert one.details is not None
        assert sum(wait.time_ns for wait in one.details.waits_for) == one.waited_ns


def test_calls_are_told_apart_by_their_place_in_the_step() -> None:
    details = _details(launch_of(TWO_LATE, TRANSFERS, sizes={"grads": [4_000] * 3}), 0)
    first, second = details.calls
    assert first == CallSummary("grads", "0", 3, 4_000, 1, 2, 4, 40 * US, 0, 10 * US, 10 * US, 1, 4, first.location)
    assert (second.number, second.alike, second.waited_ns, second.last_rank) == (2, 2, 10 * US, 2)
    assert (details.collectives, details.compared) == (2.0, 1.0)


def test_without_waits_nobody_is_last() -> None:
    (first, second) = _details(launch_of([_rank(30, 4)] * 3, TRANSFERS), 0).calls
    assert (first.last_rank, first.last_steps, second.last_rank) == (-1, 0, -1)


def test_the_step_times_of_each_rank_are_listed() -> None:
    details = _details(launch_of(TWO_LATE, TRANSFERS), 1)
    assert details.steps == tuple(
        RankStep(number, time_ns=105 * US, own_ns=75 * US, waited_ns=10 * US, exposed_ns=20 * US, caused_ns=25 * US)
        for number in range(4)
    )
    assert details.steps_per_column == 1


def test_many_steps_are_combined_into_columns_with_the_longest_of_each() -> None:
    count = 2 * MOST_STEPS
    slow = [
        acts for step in range(count) for acts in (work(90 if step == 7 else 30), *both(f"grads#{step}"), end_step())
    ]
    even = [acts for step in range(count) for acts in (work(30), *both(f"grads#{step}"), end_step())]
    details = _details(launch_of([slow, even, even], TRANSFERS), 1)
    assert (len(details.steps), details.steps_per_column) == (MOST_STEPS, 2)
    assert [(one.number, one.waited_ns) for one in details.steps[2:5]] == [(4, 0), (7, 60 * US), (8, 0)]


def test_a_rank_with_fewer_steps_has_the_means_of_those() -> None:
    launch = launch_of([_rank(30, 4), _rank(30, 4, loading=40), _rank(30, 2)], TRANSFERS)
    one = _summary(launch).ranks[2]
    assert one.details is not None
    assert (one.steps, one.waited_ns, one.details.step_ns) == (2, 40 * US, 95 * US)
    assert one.details.waits_for == (RankWait(1, 40 * US),)


def test_an_unmatched_collective_is_neither_a_wait_nor_own_work() -> None:
    launch = launch_of(TWO_LATE, TRANSFERS)
    gone = np.isin(launch.parts.joint, np.flatnonzero(launch.joint.sequence % 2 == 1))  # the second of each step
    parts = launch.parts
    kept = replace(parts, joint=parts.joint[~gone] // 2, table=parts.table[~gone], row=parts.row[~gone])
    even = {name: getattr(launch.joint, name)[::2] for name in launch.joint.__struct_fields__}
    details = _details(replace(launch, joint=replace(launch.joint, **even), parts=kept), 0)
    assert details.uncompared_ns == (10 + 10) * US
    assert (details.collectives, details.compared) == (2.0, 0.5)


def test_a_rank_whose_steps_no_other_has_has_no_mean_step() -> None:
    launch = launch_of(TWO_LATE, TRANSFERS)
    own = launch.tables[2]
    other = replace(own, steps=replace(own.steps, number=own.steps.number + 100))
    details = _details(replace(launch, tables=(*launch.tables[:2], other)), 2)
    assert (details.step_ns, details.own, details.steps) == (None, (), ())
    assert details.waits_for == (RankWait(1, 20 * US),)


def test_clocks_are_compared_by_collectives_only() -> None:
    launch = launch_of(TWO_LATE, TRANSFERS, behind=[0, 7, 0])
    assert _details(launch, 1).clock_behind_ns == 7 * US
    alone = replace(launch.parts, table=np.where(launch.parts.table == 1, 0, launch.parts.table))
    assert _details(replace(launch, parts=alone), 1).clock_behind_ns is None


@pytest.mark.parametrize(("count", "detailed"), [(MOST_DETAILED, MOST_DETAILED), (MOST_DETAILED + 1, 2 * EACH_WAY)])
def test_of_many_ranks_only_the_most_interesting_are_detailed(count: int, detailed: int) -> None:
    caused, waited = np.zeros((count, 2), np.int64), np.zeros((count, 2), np.int64)
    caused[:20], waited[20:] = np.arange(1, 21)[:, None], np.arange(1, count - 19)[:, None]
    costs = Costs(np.arange(2), caused, caused, waited, waited, np.ones((count, 2), bool))
    chosen = choose_detailed(costs)
    assert len(chosen) == detailed
    if detailed < count:
        assert chosen == [*range(12, 20), *range(count - 8, count)]


def test_of_many_ranks_that_wait_for_one_those_that_wait_longest_are_named() -> None:
    launch = launch_of([_rank(100, 2), *(_rank(10 + at, 2) for at in range(20))], TRANSFERS)
    assert [one.rank for one in _details(launch, 0).awaited_by] == list(range(1, MOST_PEERS + 1))
