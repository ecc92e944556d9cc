"""The replay of all ranks together, against the same programs played rank by rank."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.derive.launch.joint_edits import JointEdit, ask_earlier, combine_joint, shrink_ranks_work, shrink_transfers
from profkit.derive.launch.replay import replay_launch, transfer_times
from tests.derive.launch.launches import Act, ask, both, end_step, launch_of, length_of, wait, work

STEPS = 4
TRANSFERS = {"a": 10.0, "b": 20.0}


def overlapped(first: float, second: float) -> list[Act]:
    """Two buckets, asked for amid the work and waited for at its end."""
    acts: list[Act] = []
    for i in range(STEPS):
        acts += [work(first), ask(f"a#{i}"), work(second), ask(f"b#{i}"), wait(f"a#{i}"), wait(f"b#{i}"), work(5)]
        acts.append(end_step())
    return acts


def us(launch, edit=None) -> float:
    return replay_launch(launch, edit).replayed_ns / 1000


@pytest.mark.parametrize("behind", [[0.0, 0.0, 0.0], [0.0, -3e9, 7e9]])
def test_a_replay_without_an_edit_reproduces_the_recording_whatever_the_clocks(behind):
    programs = [overlapped(30, 40), overlapped(90, 40), overlapped(30, 55)]
    launch = launch_of(programs, TRANSFERS, starts=[0, 4, 8], behind=behind)
    replay = replay_launch(launch)
    assert replay.recorded_ns == replay.replayed_ns == length_of(programs, TRANSFERS, [0, 4, 8]) * 1000
    assert replay.steps == STEPS


def test_the_transfer_takes_as_long_as_for_the_last_rank():
    launch = launch_of([overlapped(30, 40), overlapped(90, 40)], TRANSFERS)
    assert transfer_times(launch)[launch.joint.operation == 0].tolist() == [10_000] * STEPS


def test_a_faster_rank_speeds_up_the_others_until_the_next_one_delays_them():
    programs = [overlapped(30, 40), overlapped(90, 40), overlapped(50, 40)]
    launch = launch_of(programs, TRANSFERS)
    late = launch.tables[1].work
    row = np.flatnonzero(late.time_ns == 90_000)
    edit = shrink_ranks_work(1, row, np.full(len(row), 30_000))
    assert us(launch, edit) == length_of([programs[0], overlapped(30, 40), programs[2]], TRANSFERS)


def test_work_that_nobody_waits_for_saves_nothing():
    programs = [overlapped(30, 40), overlapped(90, 40)]
    launch = launch_of(programs, TRANSFERS)
    row = np.flatnonzero(launch.tables[0].work.time_ns == 30_000)
    edit = shrink_ranks_work(0, row, np.zeros(len(row), dtype=np.int64))
    assert us(launch, edit) == us(launch)


def test_only_a_transfer_that_is_waited_for_saves_time():
    programs = [overlapped(30, 40)] * 2
    launch = launch_of(programs, TRANSFERS)
    for operation, gain in ((0, 0.0), (1, 20.0 * STEPS)):
        joint = np.flatnonzero(launch.joint.operation == operation)
        edit = shrink_transfers(joint, np.zeros(len(joint)), 0.1)
        assert us(launch, edit) == us(launch) - gain


def test_a_lane_runs_one_collective_at_a_time():
    programs = [[work(5), ask("a#0"), ask("b#0"), wait("b#0"), end_step()]] * 2
    launch = launch_of(programs, TRANSFERS)
    assert us(launch) == 35
    first = np.flatnonzero(launch.joint.operation == 0)
    assert us(launch, shrink_transfers(first, np.full(1, 4_000), 0.1)) == 29


def test_a_removed_collective_delays_nobody():
    def steps(middle: float, *others: Act) -> list[Act]:
        return [work(middle), *others, work(60 - middle), *both("b#0"), end_step()]

    programs = [steps(10, *both("a#0")), steps(50, *both("a#0"))]
    launch = launch_of(programs, TRANSFERS)
    joint = np.flatnonzero(launch.joint.operation == 0)
    assert us(launch) == 50 + 10 + 50 + 20
    assert us(launch, JointEdit(gone=joint)) == length_of([steps(10), steps(50)], TRANSFERS) == 80


def test_merged_collectives_run_when_the_last_one_would():
    programs = [[work(5), ask("a#0"), work(5), ask("a#1"), work(5), ask("a#2"), wait("a#2"), end_step()]] * 2
    launch = launch_of(programs, TRANSFERS)
    assert us(launch) == 35
    edit = JointEdit(joint=np.array([2]), transfer_ns=np.array([12_000]), gone=np.arange(2))
    assert us(launch, edit) == 15 + 12


def test_a_collective_requested_earlier_hides_behind_work():
    programs = [[work(60), *both("a#0"), *both("b#0"), work(5), end_step()]] * 2
    launch = launch_of(programs, TRANSFERS)
    assert us(launch) == 95
    edit = ask_earlier(np.arange(2), np.array([40_000, 10_000]), 0.3)
    early = [[work(20), ask("a#0"), work(30), ask("b#0"), work(10), wait("a#0"), wait("b#0"), work(5), end_step()]] * 2
    assert us(launch, edit) == length_of(early, TRANSFERS) == 75


def test_a_collective_that_nobody_waits_for_is_needed_at_the_end_of_its_step():
    programs = [[work(10), ask("b#0"), work(30), end_step()]] * 2
    launch = launch_of(programs, TRANSFERS)
    assert us(launch) == 40
    slower = shrink_transfers(np.arange(1), np.full(1, 50_000), 0.1)
    assert us(launch, slower) == 60


def test_a_collective_without_waits_may_last_until_the_end_of_its_step():
    """If the work around it gets shorter, its end does not become a wait. Work is removed evenly from a piece: the
    ranks ask after 3 µs, and the last piece ends when all of it has passed."""
    programs = [[work(10), ask("b#0"), work(60), work(10), wait("b#0"), end_step()]] * 2
    launch = launch_of(programs, TRANSFERS)
    row = [np.flatnonzero(table.work.time_ns == 60_000) for table in launch.tables]
    edit = combine_joint([shrink_ranks_work(rank, row[rank], np.array([5_000])) for rank in range(2)])
    assert us(launch, edit) == 25


def test_ranks_outside_a_group_do_not_wait_for_it():
    programs = [[work(10), *both("a#0"), end_step()], [work(70), *both("a#0"), end_step()], [work(20), end_step()]]
    launch = launch_of(programs, TRANSFERS)
    assert us(launch) == 80
    assert replay_launch(launch).begin_ns.tolist() == [70_000]


def test_requests_in_different_orders_do_not_deadlock_the_replay():
    programs = [
        [work(5), ask("a#0", 0), ask("b#0", 1), wait("a#0"), wait("b#0"), end_step()],
        [work(5), ask("b#0", 1), work(1), ask("a#0", 0), wait("a#0"), wait("b#0"), end_step()],
    ]
    launch = launch_of(programs, TRANSFERS)
    assert us(launch) == length_of(programs, TRANSFERS)


def test_overlapping_edits_count_once():
    programs = [overlapped(30, 40)] * 2
    launch = launch_of(programs, TRANSFERS)
    joint = np.flatnonzero(launch.joint.operation == 1)
    edits = [shrink_transfers(joint, np.full(len(joint), kept), 0.1) for kept in (5_000, 12_000)]
    assert us(launch, combine_joint(edits)) == us(launch, edits[0])
    assert combine_joint([]).uncertainty == JointEdit().uncertainty


def test_a_launch_without_collectives_takes_as_long_as_recorded():
    launch = launch_of([[work(10), end_step()], [work(30), end_step()]], TRANSFERS)
    assert us(launch) == 30


def test_a_host_that_requested_everything_beforehand_does_not_change_the_waits():
    """Its gathers begin when the layer before has ended, or right behind the reduce-scatter that needs its result."""
    acts: list[Act] = []
    for i in range(4):
        for k in range(3):
            acts += [work(100), *both(f"reduce_scatter#{i}{k}"), *both(f"all_gather#{i}{k}")]
        acts += [work(50), end_step()]
    launch = launch_of([acts, acts], {"reduce_scatter": 40, "all_gather": 30})
    tables = []
    for table in launch.tables:
        taken = table.collectives
        begun = table.steps.start_ns[np.searchsorted(table.steps.start_ns, taken.issue_ns, side="right") - 1]
        early = begun + 1_000 + np.arange(len(taken)) % 6 * 1_000
        tables.append(replace(table, collectives=replace(taken, issue_ns=early)))
    ahead = replace(launch, tables=tuple(tables))
    whole = 4 * (3 * 170 + 50) * 1000
    assert (replay_launch(ahead).recorded_ns, replay_launch(ahead).replayed_ns) == (whole, whole)
    gathers = np.flatnonzero(np.array(launch.texts)[launch.joint.operation] == "all_gather")
    shorter = shrink_transfers(gathers, np.full(len(gathers), 10_000), 0.1)
    assert whole - replay_launch(ahead, shorter).replayed_ns == 12 * 20_000
