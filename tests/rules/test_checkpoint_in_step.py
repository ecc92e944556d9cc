"""Checkpoints that are written in at least half of the steps."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.checkpoint_in_step import checkpoint_in_step
from profkit.run.directory import CallSite, Run
from profkit.savings.simulate import predict_saving
from profkit.trace.events import Category
from tests.traces import facts_of, mark, op, rows_named, step, trace_of

Json = dict[str, Any]
SAVE = "profkit.save"


def facts_about(
    *parts: list[Json], run: Run | None = None, before: list[Json] | None = None, callsites: tuple[CallSite, ...] = ()
):
    """Steps of 1000 µs. ``parts`` are further events of each step, timed from its start."""
    events = list(before or ())
    for i, part in enumerate(parts):
        at = 1000 * (i + bool(before))
        events += [step(i + 1, at, 1000), op("aten::mm", at, 100)]
        events += [{**event, "ts": event["ts"] + at} for event in part]
    return facts_of(events, run=run or Run(torch="2.13"), callsites=callsites)


def find(facts) -> list[Suspicion]:
    return list(checkpoint_in_step.check(facts))


def test_the_advised_interval_lowers_the_cost_to_one_percent_of_the_step():
    """Writing takes 500 µs and the rest of the step 500: in every 100th step it costs 5 µs a step, 1 % of 500."""
    facts = facts_about(*[[op(SAVE, 400, 500)]] * 4)
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, SAVE)
    assert found.evidence == {"saving_ns_per_step": 500_000, "interval_steps": 100}
    assert predict_saving(facts, found.edit).fraction == 0.495
    assert "every 100 steps" in found.fix


def test_views_that_bring_their_storages_are_copied_first():
    part = [mark(0, 390, 520), op(SAVE, 400, 500), op(f"{SAVE}d#1000.4000", 410, 1)]
    facts = facts_about(*[part] * 4, callsites=(CallSite("train.py", 6, "main", "torch.save(rows[:9], path)"),))
    (found,) = find(facts)
    assert "Of 4.00 kB in a file its tensors show 1.00 kB" in found.message
    assert "view.clone()" in found.fix
    assert predict_saving(facts, found.edit).time_ns_per_step == 375_000


@pytest.mark.parametrize(("steps", "reported"), [(2, 1), (1, 0)])
def test_checkpoints_in_fewer_than_half_of_the_steps_are_silent(steps, reported):
    assert len(find(facts_about(*[[op(SAVE, 400, 500)]] * steps, *[[]] * (4 - steps)))) == reported


@pytest.mark.parametrize(("duration", "reported"), [(39, 1), (38, 0)])
def test_savings_below_three_percent_are_silent(duration, reported):
    """Of 39 µs beside 961, a fifth is kept, which saves 31.2 of 1000 µs. Of 38 µs beside 962, a quarter is kept, which
    saves 28.5."""
    facts = facts_about(*[[op(SAVE, 400, duration)]] * 4)
    assert len(find(facts)) == reported


def test_a_recording_of_one_step_is_silent():
    assert find(facts_about([op(SAVE, 400, 500)])) == []


def test_each_line_that_saves_gets_its_own_finding():
    sites = tuple(CallSite("train.py", line, "train", "torch.save(...)") for line in (7, 9))
    located = [step(0, 0, 1000), mark(0, 400, 101), op(SAVE, 400, 100), mark(1, 600, 201), op(SAVE, 600, 200)]
    facts = facts_about(*[[op(SAVE, 400, 100), op(SAVE, 600, 200)]] * 4, before=located, callsites=sites)
    assert [set(facts.lines.site[found.rows]) for found in find(facts)] == [{0}, {1}]


def test_saving_on_another_thread_is_silent():
    assert find(facts_about(*[[op(SAVE, 400, 500, tid=2)]] * 4)) == []


def test_steps_that_save_nothing_are_silent():
    assert find(facts_about([], [])) == []


def test_it_cannot_look_at_a_recording_made_elsewhere():
    with pytest.raises(CannotLook, match="profkit made"):
        find(facts_about([], run=Run()))


def test_a_save_mark_is_not_an_operator():
    assert trace_of([op(SAVE, 0, 5)]).events.category.tolist() == [Category.HOST_MARK]
