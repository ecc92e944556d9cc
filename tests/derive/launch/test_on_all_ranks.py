"""Several changes to a launch at once, and a change to the program that all ranks run, against the changed programs
played rank by rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from profkit.derive.launch.joint_edits import JointEdit, combine_joint, shrink_ranks_work, shrink_transfers
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.on_all_ranks import OwnEdit, on_all_ranks
from profkit.derive.launch.replay import replay_launch
from profkit.derive.launch.table import Cause
from profkit.derive.launch.work_by_rank import Place
from tests.derive.launch.launches import SITES, Act, both, end_step, launch_of, length_of, work

STEPS = 4
TRANSFERS = {"a": 10.0, "b": 20.0}
AT_TRAIN: Place = (int(Cause.COMPUTE), "train.py", 10)
AT_DATA: Place = (int(Cause.INPUT), "data.py", 5)


def us(launch: Launch, edit: JointEdit | None = None) -> float:
    return replay_launch(launch, edit).replayed_ns / 1000


def gain(launch: Launch, *edits: JointEdit) -> float:
    return us(launch) - us(launch, combine_joint(edits))


def shrunk(launch: Launch, rank: int, before: float, after: float) -> JointEdit:
    """The rank's pieces of one length get another length."""
    row = np.flatnonzero(launch.tables[rank].work.time_ns == before * 1000)
    return shrink_ranks_work(rank, row, np.full(len(row), after * 1000))


def of_kind(launch: Launch, kind: int) -> np.ndarray:
    return np.flatnonzero(launch.joint.operation == kind)


def two_waits(first: float, second: float) -> list[Act]:
    return [work(first), *both("a#0"), work(second), *both("b#0"), end_step()]


def training(*pieces: Act) -> list[Act]:
    return [act for i in range(STEPS) for act in (*pieces, *both(f"b#{i}"), end_step())]


def test_two_changes_that_save_the_same_time_save_less_than_their_sum():
    """Rank 1 is late at the first collective and early at the second: without that collective nobody sees it."""
    launch = launch_of([two_waits(10, 50), two_waits(50, 10)], TRANSFERS)
    faster, without = shrunk(launch, 1, 50, 10), JointEdit(gone=of_kind(launch, 0))
    assert us(launch) == 130
    assert (gain(launch, faster), gain(launch, without)) == (40, 50)
    assert gain(launch, faster, without) == 50


def test_two_changes_that_save_different_time_save_their_sum():
    programs = [training(work(30)), training(work(90))]
    launch = launch_of(programs, TRANSFERS)
    faster = shrunk(launch, 1, 90, 50)
    quicker = shrink_transfers(of_kind(launch, 0), np.full(STEPS, 5_000), 0.1)
    assert (gain(launch, faster), gain(launch, quicker)) == (40 * STEPS, 15 * STEPS)
    assert gain(launch, faster, quicker) == 55 * STEPS
    changed = length_of([programs[0], training(work(50))], TRANSFERS | {"b": 5.0})
    assert us(launch, combine_joint([faster, quicker])) == changed


def test_once_one_rank_is_faster_the_next_one_delays_the_job():
    launch = launch_of([training(work(40)), training(work(100)), training(work(70))], TRANSFERS)
    first, second = shrunk(launch, 1, 100, 40), shrunk(launch, 2, 70, 40)
    assert (gain(launch, first), gain(launch, second)) == (30 * STEPS, 0)
    assert gain(launch, first, second) == 60 * STEPS


def own(launch: Launch, shares: dict[Place, float], rank: int = 0, **changed: Sequence[int]) -> JointEdit:
    count = len(launch.tables[rank].collectives)
    gone, less = (np.array(changed.get(name, [0] * count)) for name in ("gone", "less_ns"))
    return on_all_ranks(launch, OwnEdit(rank, shares, gone.astype(bool), less.astype(np.int64), 0.2))


def test_a_change_at_a_line_is_made_on_every_rank():
    launch = launch_of([training(work(40)), training(work(60))], TRANSFERS)
    edit = own(launch, {AT_TRAIN: 0.5})
    assert us(launch, edit) == length_of([training(work(20)), training(work(30))], TRANSFERS)
    assert edit.uncertainty == 0.2


def test_a_rank_that_does_nothing_at_the_line_saves_nothing():
    """Only rank 1 loads for long. Without that, rank 0 holds the job up."""
    slow = (work(50, Cause.INPUT, 2), work(40))
    launch = launch_of([training(work(60)), training(*slow)], TRANSFERS)
    assert SITES[2].file == AT_DATA[1]
    edit = own(launch, {AT_DATA: 1.0}, rank=1)
    assert gain(launch, edit) == (90 - 60) * STEPS
    assert us(launch, edit) == length_of([training(work(60)), training(work(40))], TRANSFERS)


def test_time_saved_while_waiting_for_another_rank_shortens_nothing():
    launch = launch_of([training(work(90, Cause.COMPUTE, 1)), training(work(30, Cause.INPUT, 2))], TRANSFERS)
    assert gain(launch, own(launch, {AT_DATA: 1.0}, rank=1)) == 0


@pytest.mark.parametrize("faults", ["one rank's", "the program's", "both"])
def test_a_late_rank_and_a_fault_of_the_program_are_removed_together(faults: str):
    late, of_all = work(50, Cause.INPUT, 2), work(20)
    launch = launch_of([training(of_all), training(late, of_all)], TRANSFERS)
    straggler, program = shrunk(launch, 1, 50, 0), own(launch, {AT_TRAIN: 0.5})
    edits = {"one rank's": [straggler], "the program's": [program], "both": [straggler, program]}[faults]
    lateness, rest = 0 if straggler in edits else 50, 10 if program in edits else 20
    assert us(launch, combine_joint(edits)) == (lateness + rest + 20) * STEPS


def test_a_removed_or_shortened_collective_is_so_on_all_ranks():
    launch = launch_of([two_waits(10, 50), two_waits(50, 10)], TRANSFERS)
    assert us(launch, own(launch, {}, gone=[1, 0])) == 80
    assert us(launch, own(launch, {}, less_ns=[0, 15_000])) == 115
    assert us(launch, own(launch, {}, less_ns=[0, 99_000])) == 110


def test_a_rank_with_unrecorded_work_saves_as_much_as_the_median_of_the_others():
    unknown = training(work(100, Cause.UNRECORDED, -1))
    launch = launch_of([training(work(40), work(40, Cause.INPUT, 2)), training(work(80)), unknown], TRANSFERS)
    edit = own(launch, {AT_TRAIN: 0.5})  # a quarter of rank 0's work, half of rank 1's
    assert us(launch, edit) == pytest.approx((100 * (1 - 0.375) + 20) * STEPS)


def test_a_change_elsewhere_changes_nothing():
    launch = launch_of([training(work(40)), training(work(60))], TRANSFERS)
    assert us(launch, own(launch, {})) == us(launch, own(launch, {AT_DATA: 1.0})) == us(launch)
