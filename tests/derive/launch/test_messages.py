"""Messages that carry no numbers, between ranks that end their steps at different points of a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.derive.launch.replay import replay_launch
from profkit.derive.launch.table import RankTable
from tests.derive.launch.launches import Act, ask, both, end_step, launch_of, wait, work
from tests.derive.launch.pipelines import launch as launch_pipeline
from tests.derive.launch.pipelines import pipeline

TRANSFERS = {"g1-0": 4.0, "g2-0": 4.0, "p0-1": 3.0, "p0-2": 3.0}
MESSAGES = {"g1-0": (1, 0), "g2-0": (2, 0), "p0-1": (0, 1), "p0-2": (0, 2)}
ROUNDS = 10
UNEVEN = (30, 80, 45, 60, 95, 35, 70, 50, 40, 85)


def server(ends_before_answering: bool) -> list[Act]:
    acts: list[Act] = []
    for i in range(ROUNDS):
        acts += [*both(f"g1-0#{i}"), *both(f"g2-0#{i}"), work(10)]
        answers = [*both(f"p0-1#{i}"), *both(f"p0-2#{i}")]
        acts += [end_step(), *answers] if ends_before_answering else [*answers, end_step()]
    return acts


def worker(rank: int, ends_before_sending: bool, times: Sequence[float] = UNEVEN) -> list[Act]:
    acts: list[Act] = []
    for i in range(ROUNDS):
        exchange = [*both(f"g{rank}-0#{i}"), ask(f"p0-{rank}#{i}", 1), wait(f"p0-{rank}#{i}")]
        acts.append(work(times[i] + rank))
        acts += [end_step(), *exchange] if ends_before_sending else [*exchange, end_step()]
    return acts


def recorded(programs: Sequence[Sequence[Act]], *, one_clock: bool, behind: Sequence[float] = (0, 0, 0)) -> Launch:
    tables = launch_of(programs, TRANSFERS, messages=MESSAGES, behind=behind).tables
    return match([_on_one_clock(table) for table in tables] if one_clock else tables)


def _on_one_clock(table: RankTable) -> RankTable:
    return structs.replace(table, identity=structs.replace(table.identity, clock_offset_ns=0))


def mistaken(launch: Launch) -> int:
    """How many messages are paired with those of another round. Tables count rounds from the first one."""
    sequence = [
        int(launch.tables[table].collectives.sequence[row])
        for table, row in zip(launch.parts.table.tolist(), launch.parts.row.tolist(), strict=True)
    ]
    return int((np.array(sequence)[::2] != np.array(sequence)[1::2]).sum())


@pytest.mark.parametrize("early_server", [False, True])
@pytest.mark.parametrize("early_workers", [False, True])
@pytest.mark.parametrize(("one_clock", "behind"), [(True, (0, 0, 0)), (False, (0, 9e6, -7e6))])
def test_a_parameter_server_and_its_workers_may_end_steps_at_different_points(
    early_server: bool, early_workers: bool, one_clock: bool, behind: Sequence[float]
) -> None:
    programs = [server(early_server), worker(1, early_workers), worker(2, early_workers)]
    launch = recorded(programs, one_clock=one_clock, behind=behind)
    assert len(launch.joint) >= 4 * (ROUNDS - 2)
    assert mistaken(launch) == 0
    replay = replay_launch(launch)
    assert replay.replayed_ns == pytest.approx(replay.recorded_ns, rel=0.01)


@pytest.mark.parametrize("one_clock", [True, False])
def test_messages_that_wait_for_the_receiver_stay_in_their_step(one_clock: bool) -> None:
    """Stages of a pipeline send ahead, so that messages of one step arrive at very different times after they were
    sent."""
    tables = launch_pipeline(pipeline([30.0, 60.0, 20.0], 4, jitter=(0.0, 25.0, -9.0))).tables
    launch = match([_on_one_clock(table) for table in tables] if one_clock else tables)
    assert len(launch.joint) == 2 * 2 * 4 * 5
    assert mistaken(launch) == 0


def test_messages_that_arrive_before_they_are_sent_are_not_compared() -> None:
    first, second, third = (
        _on_one_clock(table)
        for table in launch_of([server(False), worker(1, False), worker(2, False)], TRANSFERS, messages=MESSAGES).tables
    )
    taken, hour = second.collectives, 3_600_000_000_000
    times = {name: getattr(taken, name) + hour for name in ("start_ns", "end_ns", "issue_ns")}
    launch = match([first, structs.replace(second, collectives=structs.replace(taken, **times)), third])
    pairs = {launch.groups[group].ranks for group in launch.joint.group.tolist()}
    assert (1, 0) not in pairs
    assert {(2, 0), (0, 2)} <= pairs
    assert any("arrive before they are sent" in note for note in launch.notes)
