"""A stage of a pipeline with more to do than the others."""

from __future__ import annotations

import pytest
from msgspec import structs

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.straggler import straggler
from profkit.rules.unbalanced_stages import unbalanced_stages
from profkit.savings.launch.launch_savings import predict_launch_saving
from tests.derive.launch.launches import facts_of_launch, length_of
from tests.derive.launch.pipelines import launch, pipeline, stage, transfers_of
from tests.derive.launch.test_pipelines import borders

JITTER = (0.5, -0.5, 0.2, -0.4, 0.3)


def find(recorded: Launch) -> list[Suspicion]:
    return list(unbalanced_stages.check(facts_of_launch(recorded)))


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_stage_that_works_twice_as_long_is_named_with_what_equal_stages_would_give(place):
    times = [100.0] * 4
    times[place] = 200.0
    programs = pipeline(times, 8, jitter=JITTER)
    recorded = launch(programs)
    (found,) = find(recorded)
    known = f"Stage {place + 1} of 4 (rank {place}) works 1.60 ms a step, the mean stage 1.00 ms"
    assert found.message.startswith(known)
    assert (found.evidence["stage"], found.evidence["rank"], found.evidence["pipelines"]) == (place + 1, place, 1)
    assert (found.location.file, found.location.line) == ("train.py", 10)
    level = pipeline([125.0] * 4, 8, jitter=JITTER)
    gain = 1 - length_of(level, transfers_of(level)) / length_of(programs, transfers_of(programs))
    assert predict_launch_saving(facts_of_launch(recorded), found.launch_edit).fraction == pytest.approx(gain, abs=0.02)


def test_a_stage_that_only_waits_for_the_pipeline_to_fill_is_silent():
    assert find(launch(pipeline([100.0] * 4, 2, jitter=JITTER))) == []


@pytest.mark.parametrize(("longer", "known"), [(1.02, False), (1.25, True)])
def test_a_stage_is_told_from_three_percent_of_the_step_on(longer, known):
    assert bool(find(launch(pipeline([100.0, 100.0 * longer], 8)))) is known


def test_stages_that_take_turns_in_being_long_are_chance():
    turns = [[60.0, -60.0, 60.0, -60.0, 20.0], [-60.0, 60.0, -60.0, 60.0, 0.0]]
    programs = [stage(place, 2, 4, 100.0, jitter=turns[place]) for place in range(2)]
    assert find(launch(programs)) == []


def test_a_long_stage_is_no_straggler():
    facts = facts_of_launch(launch(pipeline([100.0, 100.0, 200.0, 100.0], 8)))
    with pytest.raises(CannotLook, match="no two of the recorded ranks"):
        list(straggler.check(facts))


def test_ranks_that_exchange_borders_are_silent():
    assert find(launch([borders(rank, 4, ahead=True) for rank in range(4)])) == []


def test_two_steps_are_too_few():
    with pytest.raises(CannotLook, match="fewer than three steps"):
        find(launch(pipeline([100.0, 200.0], 4, steps=2)))


def test_messages_that_go_nobody_knows_where_cannot_be_looked_at():
    tables = [
        structs.replace(table, groups=tuple(structs.replace(group, ranks=None) for group in table.groups))
        for table in launch(pipeline([100.0, 200.0], 4)).tables
    ]
    facts = facts_of_launch(match(tables))
    assert missing_needs(facts, unbalanced_stages.needs) == [Need.MESSAGES]
    assert list(unbalanced_stages.check(facts)) == []


def test_one_rank_alone_cannot_be_looked_at():
    assert Need.RANKS in unbalanced_stages.needs
    assert missing_needs(facts_of_launch(None), unbalanced_stages.needs) == [Need.RANKS]
