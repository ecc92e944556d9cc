"""``--measure``: what is asked of the measuring process, what becomes of its answers, and what they are worth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.core.processor import processor_name
from profkit.derive.facts import Facts
from profkit.diagnosis import experiments as measuring
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Severity, no_gain_note
from profkit.report import render
from profkit.report.json import parse_json, render_json
from profkit.run.directory import Host, Run
from profkit.run.experiment import Answer, Case, Experiment, Measurement
from tests.traces import facts_of, op, step

SMALL = Experiment("narrower-type", (Case("linear", ((4, 8), (8, 8)), "float64"),), to="float32")
UNKNOWN = replace(SMALL, kind="unknown")


def doubles(run: Run | None = None) -> Facts:
    """Three steps of 100 µs, 60 of them in products of doubles: the model halves them."""
    shapes = {"dims": [[64, 64], [64, 64]], "types": ["double", "double"]}
    events = [
        event for i in range(3) for event in (step(i, 100 * i, 100), op("aten::linear", 100 * i + 10, 60, **shapes))
    ]
    return facts_of(events, run=run)


def answering(*answers: Answer):
    """A measuring process that answers this, and keeps what it was asked."""
    asked: list[Experiment] = []

    def measure(facts: Facts, experiments: Sequence[Experiment]) -> Sequence[Answer]:
        asked.extend(experiments)
        return answers

    return measure, asked


def here(processor: str | None = None) -> Run:
    name = processor_name() if processor is None else processor
    return Run(device="cpu", host=Host(2, 1, 1 << 30, name))


def test_a_measured_factor_replaces_that_of_the_model():
    """Of 60 µs a fourth is left, a fifth to a third over the rounds: 45 of 100, 40 to 48."""
    measure, asked = answering(Answer(Measurement(0.25, 0.2, 1 / 3, 60_000, 15_000)))
    modelled, measured = diagnose(doubles()), diagnose(doubles(), measure)
    assert [one.kind for one in asked] == ["narrower-type"]
    (before,), (after,) = modelled.findings, measured.findings
    assert before.saving is not None
    assert after.saving is not None
    assert before.saving.fraction == pytest.approx(0.3)
    assert (after.saving.fraction, after.saving.low, after.saving.high) == pytest.approx((0.45, 0.40, 0.48), abs=1e-4)
    assert after.saving.time_ns_per_step == 45_000
    assert after.evidence == {
        **before.evidence,
        "measured_factor": 0.25,
        "measured_ns_as_it_is": 60_000,
        "measured_ns_with_the_fix": 15_000,
    }
    assert measured.health == modelled.health


def test_a_fix_that_gains_nothing_here_is_only_information():
    measure, _ = answering(Answer(Measurement(1.2, 1.1, 1.3, 60_000, 72_000)))
    (found,) = diagnose(doubles(), measure).findings
    assert found.severity is Severity.INFO
    assert found.saving is not None
    assert (found.saving.fraction, found.saving.low, found.saving.high) == (0.0, 0.0, 0.0)


def test_without_an_answer_the_model_is_kept_and_a_note_says_why():
    measure, _ = answering(Answer(failed="it would not fit"))
    modelled, measured = diagnose(doubles()), diagnose(doubles(), measure)
    assert measured.findings == modelled.findings
    assert measured.health == (*modelled.health, "--measure: float64-compute keeps its model's price: it would not fit")


def products(bfloat16: bool) -> Facts:
    """Products that only an experiment can price: what bfloat16 gains was never measured."""
    shapes = {"dims": [[512, 512], [512, 512]], "types": ["float", "float"]}
    events = [event for i in range(3) for event in (step(i, 100 * i, 100), op("aten::mm", 100 * i + 10, 60, **shapes))]
    return facts_of(events, run=Run(device="cpu", host=Host(2, 1, 1 << 30, "a processor", bfloat16)))


def test_a_finding_that_only_an_experiment_can_price_is_reported_if_it_was_run():
    measure, asked = answering(Answer(Measurement(0.5, 0.4, 0.6, 60_000, 30_000)))
    found = diagnose(products(True), measure)
    assert [one.kind for one in asked] == ["reduced-precision"]
    assert [(one.rule, one.severity) for one in found.findings] == [("full-precision-matmul", Severity.HIGH)]
    assert found.total is None


def test_without_an_answer_the_rule_could_not_look_and_a_note_says_why():
    measure, _ = answering(Answer(failed="it would not fit"))
    found = diagnose(products(True), measure)
    assert found.findings == ()
    assert "--measure" in found.skipped["full-precision-matmul"]
    assert found.health[-1] == "--measure: full-precision-matmul has no price: it would not fit"


def test_an_opportunity_that_gains_nothing_here_becomes_a_note():
    """As bfloat16 on a processor that has instructions for it, and is slower with them."""
    measure, _ = answering(Answer(Measurement(1.6, 1.5, 1.7, 60_000, 96_000)))
    found = diagnose(products(True), measure)
    assert found.findings == ()
    assert "full-precision-matmul" not in found.skipped
    assert found.health[-1].startswith(no_gain_note("full-precision-matmul"))
    assert "60.0 µs" in found.health[-1]
    assert "96.0 µs" in found.health[-1]


def test_if_nothing_can_be_measured_no_process_starts_and_a_note_says_so():
    measure, asked = answering()
    healthy = facts_of([step(i, 100 * i, 100) for i in range(3)] + [op("aten::relu", 10, 5, dims=[[4]])])
    notes = diagnose(healthy, measure).health
    assert asked == []
    assert notes[-1] == "--measure: no finding has an experiment that could take the place of its model"


def test_every_report_states_that_it_was_measured_on_this_machine():
    measure, _ = answering(Answer(Measurement(0.25, 0.2, 1 / 3, 60_000, 15_000)))
    modelled, measured = diagnose(doubles()), diagnose(doubles(), measure)
    for format_name in ("text", "markdown", "html"):
        assert "measured on this machine" in " ".join(render(measured, format_name).split())
        assert "measured on this machine" not in " ".join(render(modelled, format_name).split())
    assert '"measured_factor": 0.25' in render(measured, "json")
    assert parse_json(render_json(measured).encode()) == measured


def test_a_measurement_beside_other_programs_says_so():
    measure, _ = answering(Answer(Measurement(0.5, 0.3, 0.7, 60_000, 30_000, waited=0.72)))
    (note,) = (one for one in diagnose(doubles(), measure).health if "--measure" in one)
    assert note.endswith("because other programs had the processor for 72 % of the time: its range is wide")


def test_a_separate_process_measures_and_a_failure_affects_one_answer_only():
    answers = measuring.measure(doubles(here()), [UNKNOWN, SMALL])
    assert "no experiment is called 'unknown'" in answers[0].failed
    if "other programs had the processor" not in answers[1].failed:  # as other tests may
        assert answers[1].measurement is not None
        assert answers[1].measurement.first_ns > 0


def test_a_recording_of_another_processor_is_not_measured_here():
    for processor, reason in (("Z80", "on another processor, Z80"), ("", "does not say on which processor")):
        (answer,) = measuring.measure(doubles(here(processor)), [SMALL])
        assert answer.measurement is None
        assert reason in answer.failed


def test_a_process_that_hangs_is_ended_and_its_answers_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The time that it is given begins once it hangs, however long a busy machine takes to start it."""
    hangs = tmp_path / "hangs"
    os.mkfifo(hangs)
    script = (
        'import time\nprint(\'{"failed": "first"}\', flush=True)\n'
        f"print('{{\"fai', end='', flush=True)\nopen({str(hangs)!r}, 'w').close()\ntime.sleep(60)"
    )
    popen = measuring.subprocess.Popen

    def begin(command: list[str], **how: Any) -> Any:
        process = popen([command[0], "-c", script], **how)
        hangs.read_bytes()
        return process

    monkeypatch.setattr(measuring.subprocess, "Popen", begin)
    answers = measuring.measure(doubles(here()), [SMALL] * 3, timeout_s=0.1)
    assert [answer.failed for answer in answers] == ["first", *[measuring._NO_ANSWER.failed] * 2]


def test_a_process_that_cannot_begin_answers_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measuring, "_CHILD", "profkit.no_such_module")
    assert measuring.measure(doubles(here()), [SMALL]) == [measuring._NO_ANSWER]
    monkeypatch.setattr(measuring.sys, "executable", "/no/such/python")
    assert measuring.measure(doubles(here()), [SMALL]) == [measuring._NO_ANSWER]
