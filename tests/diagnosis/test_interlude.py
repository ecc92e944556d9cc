"""What was found between the steps, as a share of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.interlude import describe_interlude, find_interlude, in_run
from profkit.findings.values import Finding, Kind, Location, Saving, Severity
from profkit.run.directory import CallSite, Interlude, Run
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime
from tests.traces import facts_of, op, step

S = 1_000_000_000
SITE = CallSite("train.py", 40, "main", "score = validate(model)")
EVENTS = [event for i in range(4) for event in (step(i, 10_000 * i, 10_000), op("aten::mm", 10_000 * i, 50))]
DISCARDED = Finding(
    rule="mostly-discarded-result",
    kind=Kind.FAULT,
    severity=Severity.HIGH,
    message="One operator computes what is not used.",
    count=1,
    confidence=0.9,
    fix="Slice before.",
    location=Location("train.py", 50, "validate", "scores = x @ w"),
    saving=Saving(50_000_000, 0.5, 0.4, 0.6),
)


def facts(interlude_s: float = 4.0, signal: str | None = "round", **run: Any) -> Facts:
    """A run of 10 s, the evaluation of which was recorded."""
    stack = StackTime(StackActivity.OTHER.value, (0,), 10 * S, 10 * S, 0, 10 * S, 100, 1)
    account = RunAccount(0, S, 11 * S, (Place(SITE),), (stack,), S)
    beside = facts_of(
        EVENTS, run=Run(torch="2.13", step_signal=signal, interlude=Interlude(SITE, int(interlude_s * S)))
    )
    made = facts_of(EVENTS, run=Run(torch="2.13", **run), account=account)
    made.interlude = beside
    return made


def test_half_of_a_step_that_takes_two_fifths_of_the_run_is_a_fifth_of_it():
    (found,) = in_run(facts(), [DISCARDED], [])
    assert found.saving == Saving(0, pytest.approx(0.2), pytest.approx(0.16), pytest.approx(0.24), run_ns=2 * S)
    assert found.severity is Severity.HIGH
    assert found.message == (
        "One operator computes what is not used. Seen between the training's steps, below train.py:40 (40 % of the "
        "run): a step there is a round of a loop."
    )


@pytest.mark.parametrize(
    ("signal", "end"), [("forward", ": a step there is a call of the model."), (None, " (40 % of the run).")]
)
def test_the_message_says_what_a_step_is(signal, end):
    (found,) = in_run(facts(signal=signal), [DISCARDED], [])
    assert found.message.endswith(end)


def test_severity_is_that_of_the_share_of_the_run():
    (found,) = in_run(facts(interlude_s=1.0), [DISCARDED], [])
    assert found.saving is not None
    assert (found.severity, found.saving.fraction) == (Severity.MEDIUM, pytest.approx(0.05))


def test_severity_is_never_higher_than_where_it_was_found():
    (found,) = in_run(facts(), [replace(DISCARDED, severity=Severity.LOW)], [])
    assert found.severity is Severity.LOW


@pytest.mark.parametrize(
    "change",
    [
        {"saving": None},
        {"location": None},
        {"saving": Saving(0, 0.5, 0.4, 0.6, run_ns=S)},
        {"saving": Saving(1_000_000, 0.02, 0.01, 0.03)},
    ],
)
def test_what_has_no_price_or_place_or_is_small_is_left_out(change):
    assert list(in_run(facts(), [replace(DISCARDED, **change)], [])) == []


def test_what_is_known_of_the_steps_is_told_once():
    assert list(in_run(facts(), [DISCARDED], [DISCARDED])) == []


@pytest.mark.parametrize("run", [{"signals_per_step": 24}, {"one_in": 24}])
def test_whole_cycles_hold_it_too(run):
    assert find_interlude(facts(**run)) is None
    assert list(in_run(facts(**run), [DISCARDED], [])) == []


def test_nothing_is_told_of_a_run_without_one():
    alone = facts()
    alone.interlude = None
    assert (find_interlude(alone), describe_interlude(alone)) == (None, None)


def test_the_recording_says_that_it_holds_more():
    assert describe_interlude(facts()) == (
        "what passes between the steps, below train.py:40, was recorded too, 4.00 s or 40 % of the run: "
        "rounds of a loop"
    )


def test_a_link_out_of_the_run_is_not_followed(tmp_path: Path):
    from profkit.diagnosis.pipeline import _read_interlude

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "interlude").symlink_to(tmp_path / "elsewhere")
    assert _read_interlude(tmp_path / "run") is None
