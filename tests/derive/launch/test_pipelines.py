"""Ranks that pass micro-batches on to each other, and those that only look like it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.bubbles import even_share, measure_bubble, with_even_stages, with_half_batches
from profkit.derive.launch.late import find_late
from profkit.derive.launch.lateness import weigh_lateness
from profkit.derive.launch.matching import match
from profkit.derive.launch.pipelines import Staging, find_staging
from profkit.derive.launch.replay import replay_launch
from profkit.derive.launch.table import Group
from profkit.derive.launch.work_by_rank import measure_work_by_rank
from tests.derive.launch.launches import Act, ask, end_step, length_of, wait, work
from tests.derive.launch.pipelines import STEPS, interleaved, launch, pipeline, ring, transfers_of


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 4), (4, 4), (4, 16)])
def test_stages_that_pass_on_micro_batches_are_a_pipeline(stages, micro_batches):
    found = launch(pipeline([30.0] * stages, micro_batches))
    (one,) = find_staging(found).pipelines
    assert (one.stages, one.micro_batches, one.returns) == (tuple(range(stages)), micro_batches, True)
    assert len(one.joint) == 2 * (stages - 1) * micro_batches * STEPS


def test_a_pipeline_without_gradients_is_recognised_with_its_first_stage():
    (one,) = find_staging(launch(pipeline([30.0] * 3, 4, returns=False))).pipelines
    assert (one.stages, one.returns) == ((0, 1, 2), False)


def test_two_tensors_for_each_micro_batch_are_one_micro_batch():
    programs = pipeline([30.0] * 3, 4, tensors=2)
    (one,) = find_staging(launch(programs)).pipelines
    assert one.micro_batches == 8  # two tensors of one micro-batch look like two micro-batches


def borders(rank: int, ranks: int, ahead: bool) -> list[Act]:
    """Each step exchanges borders with both neighbours four times, and works afterwards. With ``ahead`` all send before
    they receive; else odd ranks receive first."""
    acts: list[Act] = []
    lane = iter(range(1, 10**6))
    neighbours = [other for other in (rank - 1, rank + 1) if 0 <= other < ranks]
    for step in range(STEPS):
        for turn in range(4):
            names = [(f"f{rank}-{other}#{step}.{turn}", f"f{other}-{rank}#{step}.{turn}") for other in neighbours]
            sends = [ask(sent, next(lane)) for sent, _ in names]
            takes = [act for _, taken in names for act in (ask(taken, next(lane)), wait(taken))]
            acts += [*sends, *takes] if ahead or rank % 2 == 0 else [*takes, *sends]
            acts.append(work(30))
        acts.append(end_step())
    return acts


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("ahead", [True, False])
def test_neighbours_that_exchange_borders_are_no_pipeline(ranks, ahead):
    found = launch([borders(rank, ranks, ahead) for rank in range(ranks)])
    assert find_staging(found).pipelines == ()
    assert len(set(measure_work_by_rank(found).kind.tolist())) == (1 if ranks == 2 else 2)  # ends have one neighbour


def test_a_pipeline_with_an_unrecorded_stage_is_not_recognised():
    tables = launch(pipeline([30.0] * 4, 4)).tables
    assert find_staging(match([tables[0], tables[1], tables[3]])).pipelines == ()


def test_stages_with_different_work_are_not_late():
    found = launch(pipeline([30.0, 30.0, 60.0, 30.0], 4))
    assert len(set(measure_work_by_rank(found).kind.tolist())) == 4
    assert find_late(measure_work_by_rank(found)) is None


@pytest.mark.parametrize(("ranks", "chunks", "micro_batches"), [(2, 2, 2), (2, 2, 4), (2, 4, 8), (3, 2, 3), (4, 2, 8)])
def test_ranks_with_several_stages_are_a_relay_and_nobody_is_late(ranks, chunks, micro_batches):
    found = launch(interleaved(ranks, chunks, micro_batches, [30.0] * (ranks - 1) + [60.0]))
    assert find_staging(found).pipelines == ()
    (relay,) = find_staging(found).relays
    assert relay.ranks == tuple(range(ranks))
    assert len(relay.joint) == len(found.joint) == 2 * (ranks * chunks - 1) * micro_batches * STEPS
    assert find_late(measure_work_by_rank(found)) is None


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ring_attention_is_neither_and_its_slow_rank_is_late(ranks):
    found = launch(ring(ranks, [30.0] * (ranks - 1) + [60.0]))
    assert find_staging(found) == Staging()
    late = find_late(measure_work_by_rank(found))
    assert late is not None
    assert late.ranks.tolist() == [ranks - 1]


@pytest.mark.parametrize("ahead", [True, False])
def test_neighbours_that_exchange_borders_are_no_relay(ahead):
    assert find_staging(launch([borders(rank, 4, ahead) for rank in range(4)])).relays == ()


@pytest.mark.parametrize("tensors", [1, 2])
def test_a_pipeline_is_no_relay(tensors):
    assert find_staging(launch(pipeline([30.0] * 3, 4, tensors=tensors))).relays == ()


def test_a_pipeline_with_another_number_of_micro_batches_in_each_step_is_a_relay():
    steps = [pipeline([30.0] * 3, batches, steps=1) for batches in (2, 4, 3, 4)]
    programs = [
        [
            replace(act, name=f"{act.name}.{at}") if act.name else act
            for at, step in enumerate(steps)
            for act in step[rank]
        ]
        for rank in range(3)
    ]
    found = launch(programs)
    assert find_staging(found).pipelines == ()
    assert [relay.ranks for relay in find_staging(found).relays] == [(0, 1, 2)]


def test_the_same_stages_of_two_pipelines_are_compared_with_each_other():
    def second(times: list[float]) -> list[list[Act]]:
        names = {"f0-1": "f2-3", "b1-0": "b3-2"}
        return [
            [replace(act, name=names[act.name[:4]] + act.name[4:]) if act.name else act for act in program]
            for program in pipeline(times, 4)
        ]

    both = launch([*pipeline([30.0, 40.0], 4), *second([30.0, 60.0])])
    assert [one.stages for one in find_staging(both).pipelines] == [(0, 1), (2, 3)]
    own = measure_work_by_rank(both)
    assert own.kind[0] == own.kind[2] != own.kind[1] == own.kind[3]
    late = find_late(own)
    assert late is not None
    assert late.late.tolist() == [False, False, False, True]


def test_ranks_whose_receivers_are_unknown_are_not_compared():
    known = launch([borders(rank, 2, True) for rank in range(2)])
    tables = [
        structs.replace(
            table, groups=(table.groups[0], *(structs.replace(group, ranks=None) for group in table.groups[1:]))
        )
        for table in known.tables
    ]
    found = match(tables)
    assert len(found.joint) == 0
    assert find_late(measure_work_by_rank(found)) is None


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 4), (4, 16)])
def test_equal_stages_idle_as_long_as_the_formula_says(stages, micro_batches):
    found = launch(pipeline([300.0] * stages, micro_batches))
    (one,) = find_staging(found).pipelines
    bubble = measure_bubble(found, weigh_lateness(found), one)
    assert even_share(one) == (stages - 1) / (micro_batches + stages - 1)
    assert bubble.share == pytest.approx(even_share(one), abs=0.03)  # the first step begins without a wait
    assert bubble.worked_ns == pytest.approx([300_000 * micro_batches] * stages)


@pytest.mark.parametrize("times", [[30.0, 30.0], [30.0, 60.0, 20.0], [60.0, 20.0, 20.0, 20.0]])
def test_a_pipeline_replayed_without_an_edit_takes_as_long_as_recorded(times):
    programs = pipeline(times, 4)
    found = replay_launch(launch(programs))
    assert found.recorded_ns == pytest.approx(1000 * length_of(programs, transfers_of(programs)), abs=1_000)
    assert found.replayed_ns == pytest.approx(found.recorded_ns, rel=0.01)  # clocks are known to half a transfer


@pytest.mark.parametrize(("place", "micro_batches"), [(0, 4), (1, 4), (2, 8), (3, 8)])
def test_balanced_stages_take_as_long_as_a_pipeline_of_equal_ones(place, micro_batches):
    times = [30.0] * 4
    times[place] = 90.0
    found = launch(pipeline(times, micro_batches))
    edit = with_even_stages(found, measure_work_by_rank(found), find_staging(found).pipelines)
    level = pipeline([45.0] * 4, micro_batches)
    expected = 1000 * length_of(level, transfers_of(level))
    assert replay_launch(found, edit).replayed_ns == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 4), (4, 8)])
def test_more_micro_batches_save_half_of_the_ideal_amount(stages, micro_batches):
    few = pipeline([400.0] * stages, micro_batches)
    many = pipeline([200.0] * stages, 2 * micro_batches)
    found = launch(few)
    before, after = (length_of(one, transfers_of(one)) for one in (few, many))
    replayed = replay_launch(found, with_half_batches(found, find_staging(found).pipelines))
    gained = 1 - replayed.replayed_ns / (1000 * before)
    assert gained == pytest.approx((1 - after / before) / 2, abs=0.02)


def test_clocks_of_ranks_that_only_exchange_messages_lie_within_their_bounds():
    found = launch(pipeline([300.0] * 3, 4), behind=[0.0, 5_000_000.0, -70_000.0])
    assert np.abs(found.offset_ns - [0, 5_000_000_000, -70_000_000]).max() <= 1_000  # a transfer


def test_removing_an_apparently_late_receiver_does_not_shorten_a_message():
    found = launch(pipeline([30.0, 30.0], 1))
    taken = found.tables[0].collectives
    sends = np.array([bool(group.sends) for group in found.tables[0].groups])[taken.group]
    looked = structs.replace(taken, end_ns=taken.end_ns + 5_000 * sends)
    slow = match([structs.replace(found.tables[0], collectives=looked), found.tables[1]])
    costs = weigh_lateness(slow)
    forwards = [at for at, group in enumerate(slow.groups) if group.is_message and group.ranks == (0, 1)]
    assert set(costs.transfer_ns[slow.joint.group == forwards[0]].tolist()) == {1_000}


def test_messages_are_matched_by_sender_and_receiver_both_ways():
    found = launch(pipeline([30.0] * 3, 2))
    pairs = sorted(group.ranks for group in found.groups if isinstance(group, Group) and group.is_message)
    assert pairs == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert set(found.joint.members.tolist()) == {2}
