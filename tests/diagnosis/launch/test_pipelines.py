"""What the summary of a launch says about pipelines."""

from __future__ import annotations

from contextlib import suppress

import pytest

from profkit.derive.launch import work_by_rank
from profkit.derive.launch.late import find_late
from profkit.derive.launch.lateness import find_reasons, weigh_lateness
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import find_staging
from profkit.derive.launch.work_by_rank import measure_work_by_rank
from profkit.diagnosis.launch.summary import summarise
from profkit.rules.base import CannotLook
from profkit.rules.pipeline_bubble import pipeline_bubble
from profkit.rules.straggler import straggler
from profkit.rules.unbalanced_input import unbalanced_input
from profkit.rules.unbalanced_stages import unbalanced_stages
from profkit.savings.launch.uneven_inputs import uneven_inputs
from tests.derive.launch.launches import facts_of_launch
from tests.derive.launch.pipelines import interleaved, launch, pipeline, ring
from tests.derive.launch.test_pipelines import borders


def summary_of(recorded: Launch):  # type: ignore[no-untyped-def]
    costs = weigh_lateness(recorded)
    own = measure_work_by_rank(recorded)
    late = find_late(own)
    return summarise(recorded, costs, own.staging, find_reasons(recorded, costs, own, late), late)


def test_a_pipeline_is_summarised_by_stages_micro_batches_and_idle_time():
    (one,) = summary_of(launch(pipeline([300.0, 300.0], 4))).pipelines
    assert [stage.rank for stage in one.stages] == [0, 1]
    assert [stage.worked_ns for stage in one.stages] == [1_200_000, 1_200_000]
    assert one.micro_batches == 4
    assert one.even_fraction == 0.2
    assert one.idle_fraction == pytest.approx(0.2, abs=0.02)


def test_stages_that_wait_for_each_other_are_not_late():
    summary = summary_of(launch(pipeline([300.0, 600.0, 300.0], 4)))
    assert all(one.caused_ns == one.late_steps == one.kept_waiting == 0 for one in summary.ranks)
    assert all(one.waited_ns > 0 for one in summary.ranks)
    pages = [one.details for one in summary.ranks if one.details is not None]
    assert len(pages) == 3
    assert all(page.waits_for and not page.awaited_by for page in pages)
    assert all(step.caused_ns == 0 for page in pages for step in page.steps)


def test_ranks_that_exchange_borders_may_be_late():
    slow = borders(1, 4, ahead=True)
    programs = [borders(rank, 4, ahead=True) for rank in range(4)]
    programs[1] = [act if act.kind != "work" else type(act)("work", duration=90.0) for act in slow]
    summary = summary_of(launch(programs))
    assert summary.pipelines == ()
    assert summary.ranks[1].caused_ns > 0


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_with_several_stages_are_not_late_and_a_note_says_why(ranks):
    summary = summary_of(launch(interleaved(ranks, 2, 4, [30.0] * (ranks - 1) + [60.0])))
    assert summary.pipelines == ()
    assert all(one.caused_ns == one.late_steps == 0 < one.waited_ns for one in summary.ranks)
    named = ", ".join(map(str, range(ranks)))
    assert [
        note
        for note in summary.notes
        if note.startswith(f"ranks {named} look like a pipeline with several stages a rank")
    ]


def test_in_ring_attention_the_slow_rank_is_late():
    summary = summary_of(launch(ring(4, [30.0, 30.0, 60.0, 30.0])))
    assert summary.notes == ()
    worst = max(summary.ranks, key=lambda one: one.caused_ns)
    assert (worst.rank, worst.is_by_chance, worst.cause) == (2, False, "compute")


def test_stages_are_determined_once_per_launch(monkeypatch):
    sought = []
    monkeypatch.setattr(work_by_rank, "find_staging", lambda launch: sought.append(launch) or find_staging(launch))
    found = launch(pipeline([300.0, 300.0], 4))
    facts = facts_of_launch(found)
    for rule in (pipeline_bubble, straggler, unbalanced_input, unbalanced_stages):
        with suppress(CannotLook):
            list(rule.check(facts))
    own = uneven_inputs(facts).own
    summary = summarise(found, weigh_lateness(found), own.staging, [None, None], find_late(own))
    assert len(summary.pipelines) == len(sought) == 1
