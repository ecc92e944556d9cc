"""Checkpoints that the training waits for, and those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import SAVE_MARK, SAVED_MARK
from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Severity
from profkit.rules.base import Need, missing_needs
from profkit.rules.checkpoint_stops_training import checkpoint_stops_training
from profkit.run.directory import CallSite, Run
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime
from profkit.trace.events import no_trace
from tests.traces import annotation, facts_of, op, step

S = 1_000_000_000
TRAIN, SAVE = (
    Place(CallSite("train.py", 4, "main"), loop=3, trains=True),
    Place(CallSite("train.py", 6, "main"), loop=2),
)


def facts_with(save_s, *, visits=3, trained_s=20, events=(), first_s=1):
    """Three stretches of training of the same length; after each the model is saved for ``save_s`` in all."""
    training = StackTime(StackActivity.BACKWARD.value, (0,), trained_s * S, 0, first_s * S, 90 * S, 99, 3)
    saving = StackTime(StackActivity.SAVING.value, (1,), int(save_s * S), 0, 10 * S, 80 * S, 9, visits)
    column = int(save_s * S / max(visits, 1))
    columns = [((1, column),) if at in range(10, 10 + 20 * visits, 20) else ((0, S),) for at in range(91)]
    account = RunAccount(0, S, 100 * S, (TRAIN, SAVE), (training, saving), S, tuple(columns), is_over=True)
    run = Run(torch="2.13")
    return facts_of(events, account=account, run=run) if events else Facts(no_trace(), run, account=account)


def test_checkpoints_that_take_a_sixth_of_the_run_are_reported_at_the_line_that_saves():
    (found,) = checkpoint_stops_training.check(facts_with(4))
    assert (found.location.file, found.location.line) == ("train.py", 6)
    assert (
        found.message
        == "4.00 s of the run's 24.0 s passes while checkpoints are written: training stops for them at least 3 times."
    )
    assert found.evidence == {"saving_ns_in_run": 3_999_999_999, "checkpoints_seen": 3, "interval": 20}
    assert found.run_ns == pytest.approx(3.8 * S, rel=1e-3)


def test_its_price_is_a_share_of_the_run():
    diagnosis = diagnose(facts_with(4))
    (finding,) = (finding for finding in diagnosis.findings if finding.rule == "checkpoint-stops-training")
    assert finding.severity is Severity.HIGH
    assert finding.saving.time_ns_per_step == 0
    assert finding.saving.fraction == pytest.approx(3.8 / 24, rel=1e-3)
    assert (finding.saving.low, finding.saving.high) == pytest.approx((0.75 * 3.8 / 24, 1.25 * 3.8 / 24), rel=1e-3)
    assert diagnosis.verdict.text.startswith("1 fault costs 16 % (12 to 20) of the run: checkpoint-stops-training")


@pytest.mark.parametrize(("save_s", "reported"), [(0.61, False), (0.63, True)])
def test_less_than_three_per_cent_is_no_fault(save_s, reported):
    assert bool(list(checkpoint_stops_training.check(facts_with(save_s)))) is reported


def test_a_single_checkpoint_is_no_fault():
    assert list(checkpoint_stops_training.check(facts_with(4, visits=1))) == []


def test_checkpoints_in_each_step_are_left_to_the_rule_of_the_step():
    steps = [event for i in range(4) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 500))]
    saves = [annotation(SAVE_MARK, 1000 * i + 600, 300) for i in range(4)]
    assert list(checkpoint_stops_training.check(facts_with(4, events=steps)))
    assert list(checkpoint_stops_training.check(facts_with(4, events=steps + saves))) == []


def test_a_recording_without_an_account_cannot_be_looked_at():
    facts = facts_of([step(0, 0, 10), op("aten::mm", 1, 2)])
    assert missing_needs(facts, checkpoint_stops_training.needs) == [Need.WHOLE_RUN]


def test_one_in_more_than_there_were_is_not_proposed():
    (few,) = checkpoint_stops_training.check(facts_with(4, visits=3))
    assert few.evidence["interval"] == 20
    assert few.fix.startswith("Write the last one alone, or one now and then by the clock")
    (many,) = checkpoint_stops_training.check(facts_with(0.7, visits=4))
    assert many.fix.startswith("Write one in 4 of them, which costs about 1.0 %.")


def saving(*names: str) -> list[dict[str, Any]]:
    """Four steps, in the second of which a file is written; marks of these names lie within."""
    steps = [event for i in range(4) for event in (step(i, 1000 * i, 1000), op("aten::mm", 1000 * i, 500))]
    return [*steps, annotation(SAVE_MARK, 1600, 300), *(annotation(name, 1610, 1) for name in names)]


def test_views_that_bring_their_storages_are_told_and_priced_by_what_they_show():
    (found,) = checkpoint_stops_training.check(facts_with(4, events=saving(f"{SAVED_MARK}1000000.4000000")))
    assert found.message.endswith(
        "Of 4.00 MB in a file its tensors show 1.00 MB: they are views, and are saved with their whole storages."
    )
    assert "view.clone()" in found.fix
    assert found.run_ns == pytest.approx(3 * S, rel=1e-3)


@pytest.mark.parametrize("name", ["", "4.1", "1.0", "x.4", "1.4.4", f"1.{'9' * 19}"])
def test_a_mark_that_says_nothing_sensible_is_passed_by(name):
    (found,) = checkpoint_stops_training.check(facts_with(4, events=saving(f"{SAVED_MARK}{name}")))
    assert found.fix.startswith("Write the last one alone")
