"""A pipeline with few micro-batches."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.pipeline_bubble import pipeline_bubble
from profkit.savings.launch.launch_savings import predict_launch_saving
from tests.derive.launch.launches import facts_of_launch, length_of
from tests.derive.launch.pipelines import launch, pipeline, transfers_of
from tests.derive.launch.test_pipelines import borders


def find(recorded: Launch) -> list[Suspicion]:
    return list(pipeline_bubble.check(facts_of_launch(recorded)))


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 4), (4, 4), (4, 8)])
def test_a_pipeline_with_few_micro_batches_is_told_with_what_it_idles_and_what_twice_as_many_may_give(
    stages, micro_batches
):
    few = pipeline([400.0] * stages, micro_batches)
    recorded = launch(few)
    (found,) = find(recorded)
    assert found.evidence["stages"] == stages
    assert found.evidence["micro_batches"] == micro_batches
    assert found.evidence["idle_fraction"] == pytest.approx((stages - 1) / (micro_batches + stages - 1), abs=0.03)
    assert (found.location.file, found.location.line) == ("train.py", 10)
    many = pipeline([200.0] * stages, 2 * micro_batches)
    most = 1 - length_of(many, transfers_of(many)) / length_of(few, transfers_of(few))
    saving = predict_launch_saving(facts_of_launch(recorded), found.launch_edit)
    assert saving.fraction == pytest.approx(most / 2, abs=0.02)
    assert saving.low == 0
    assert saving.high == pytest.approx(most, abs=0.04)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "known"), [(2, 7, True), (2, 8, False), (4, 15, True), (4, 16, False)]
)
def test_four_micro_batches_for_each_stage_are_enough(stages, micro_batches, known):
    assert bool(find(launch(pipeline([400.0] * stages, micro_batches)))) is known


def test_a_pipeline_that_idles_for_another_reason_than_its_few_micro_batches_is_silent():
    assert find(launch(pipeline([100.0, 300.0], 24))) == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_exchange_borders_are_silent(ranks):
    assert find(launch([borders(rank, ranks, ahead=False) for rank in range(ranks)])) == []


def test_a_pipeline_without_gradients_has_its_next_batch_to_work_on():
    assert find(launch(pipeline([400.0] * 4, 4, returns=False))) == []


def test_a_pipeline_of_which_a_stage_is_missing_is_silent():
    tables = launch(pipeline([400.0] * 4, 4)).tables
    assert find(match(tables[:3])) == []


def test_two_steps_are_too_few():
    with pytest.raises(CannotLook, match="fewer than three steps"):
        find(launch(pipeline([400.0] * 2, 2, steps=2)))


def test_messages_that_go_nobody_knows_where_cannot_be_looked_at():
    tables = [
        structs.replace(table, groups=tuple(structs.replace(group, ranks=None) for group in table.groups))
        for table in launch(pipeline([400.0] * 2, 2)).tables
    ]
    facts = facts_of_launch(match(tables))
    assert missing_needs(facts, pipeline_bubble.needs) == [Need.MESSAGES]
    assert list(pipeline_bubble.check(facts)) == []


def test_one_rank_alone_cannot_be_looked_at():
    assert Need.RANKS in pipeline_bubble.needs
    assert missing_needs(facts_of_launch(None), pipeline_bubble.needs) == [Need.RANKS]


def test_nothing_is_said_of_a_launch_without_messages():
    assert find(match([])) == []
    assert np.array_equal(launch(pipeline([1.0] * 2, 1)).joint.members, [2] * 10)
