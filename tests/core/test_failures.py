"""Whatever breaks inside profkit costs its own part of the report, and is named there with the line to report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from profkit import cli
from profkit.core.failures import OWN_ERROR, STRICT, attempt, describe_failure
from profkit.derive import facts as derived
from profkit.derive.facts import Facts
from profkit.diagnosis import health
from profkit.diagnosis import pipeline as diagnosing
from profkit.diagnosis.pipeline import diagnose
from profkit.report import render
from profkit.rules import all_rules
from tests.traces import facts_of, kernel, op, runtime, step


def recording() -> Facts:
    """Three steps with a product in float64 and kernels."""
    events = [step(i, 1000 * i, 1000) for i in range(3)]
    for at in range(0, 3000, 1000):
        dims, types = [[64, 64], [64, 64]], ["double", "double"]
        events += [op("aten::mm", at + 500, 400, dims=dims, types=types, external=at + 1)]
        events += [
            runtime("cudaLaunchKernel", at + 510, 5, correlation=at + 1, external=at + 1),
            kernel("gemm", at + 520, 300, correlation=at + 1, external=at + 1),
        ]
    return facts_of(events)


@pytest.fixture(autouse=True)
def _as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STRICT, raising=False)


def break_down(*_arguments: Any, **_named: Any) -> Any:
    raise ValueError("broken for the test")


FAILED = rf"{OWN_ERROR} \(ValueError at [a-z_/]+\.py:\d+\), please report it"


def broken(notes: tuple[str, ...]) -> list[str]:
    return [re.sub(rf" {FAILED}", "", note) for note in notes if re.search(FAILED, note)]


def test_a_fact_that_fails_stops_only_the_rules_that_need_it(monkeypatch):
    monkeypatch.setattr(derived, "find_lines", break_down)
    found = diagnose(recording())
    failed = [name for name, reason in found.skipped.items() if re.fullmatch(FAILED, reason)]
    whole = diagnose_whole(monkeypatch)
    assert failed
    assert set(found.skipped) - set(failed) <= set(whole.skipped)
    assert set(all_rules()) - set(found.skipped)
    assert found.timing.step_time_ns == whole.timing.step_time_ns


def diagnose_whole(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.undo()
    return diagnose(recording())


@pytest.mark.parametrize(
    "name",
    [
        "find_lines",
        "link_launches",
        "describe_device",
        "find_waits",
        "follow_memory",
        "describe_operators",
        "find_updates",
        "match_located",
        "build_tree",
        "find_steps",
    ],
)
def test_whichever_fact_fails_there_is_a_report_in_every_format(monkeypatch, name):
    monkeypatch.setattr(derived, name, break_down)
    found = diagnose(recording())
    assert broken((*found.health, *found.skipped.values()))
    for format_name in ("text", "json", "markdown", "html", "sarif"):
        assert OWN_ERROR in render(found, format_name)


def test_a_fact_that_fails_is_computed_only_once(monkeypatch):
    tried = []

    def count_and_break(*_arguments):
        tried.append(1)
        raise ValueError

    monkeypatch.setattr(derived, "find_lines", count_and_break)
    diagnose(recording())
    assert len(tried) == 1


def test_a_failure_raised_again_names_the_same_line(monkeypatch):
    monkeypatch.setattr(derived, "find_lines", break_down)
    facts, note_ = recording(), []
    for _ in range(3):
        with pytest.raises(ValueError, match="broken for the test") as raised:
            _ = facts.lines
        note_.append((describe_failure(raised.value), len(raised.traceback)))
    assert len({line for line, _ in note_}) == 1
    assert note_[1][1] == note_[2][1]  # nothing is added to its traceback, and kept, with each who asks


def test_if_finding_steps_fails_the_whole_recording_is_one_step(monkeypatch):
    monkeypatch.setattr(derived, "find_steps", break_down)
    found = diagnose(recording())
    assert "finding the steps" in broken(found.health)
    assert found.timing.steps == 1
    assert found.timing.step_time_ns == 3_000_000
    assert found.timing.steps_from == "the whole recording, as one step"


def test_if_copying_shapes_fails_the_recording_is_judged_without_them(monkeypatch):
    monkeypatch.setattr(derived, "match_located", break_down)
    found = diagnose(recording())
    assert "copying the shapes of one step to the others" in broken(found.health)
    assert found.timing.steps == 3


def test_a_health_check_that_fails_stops_no_other(monkeypatch):
    def check_moon(_facts: Facts) -> str | None:
        raise ValueError

    monkeypatch.setattr(health, "CHECKS", (check_moon, lambda _facts: "a flaw"))
    found = diagnose(recording())
    assert broken(found.health) == ["a check of the recording (check_moon)"]
    assert "a flaw" in found.health


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("step_time", "the step without the recording"),
        ("loader_accounts", "the account of the DataLoader"),
        ("_predict_total", "what all faults cost together"),
        ("_describe_steps", "timing the steps"),
        ("_summarise", "naming the device"),
        ("check_recording", "checking the recording"),
    ],
)
def test_a_failed_part_of_the_report_is_named_and_loses_no_finding(monkeypatch, name, note):
    monkeypatch.setattr(diagnosing, name, break_down)
    found = diagnose(recording())
    (note_,) = broken(found.health)
    assert note_.startswith(note)
    assert found.findings == diagnose_whole(monkeypatch).findings


def test_in_strict_mode_failures_are_raised(monkeypatch):
    monkeypatch.setenv(STRICT, "1")
    monkeypatch.setattr(derived, "find_lines", break_down)
    with pytest.raises(ValueError, match="broken for the test"):
        diagnose(recording())


def test_the_line_to_report_is_the_last_one_inside_profkit():
    value, notes = attempt("reading", lambda: Path("/nowhere/at/all").read_text(encoding="utf-8"), "")
    assert value == ""
    assert re.fullmatch(
        rf"reading {OWN_ERROR} \(FileNotFoundError at core/failures\.py:\d+\), please report it", "".join(notes)
    )


def test_the_command_line_reports_its_failure_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(cli, "group", break_down)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 4
    line = capsys.readouterr().err
    assert re.fullmatch(
        r"profkit: failed inside profkit \(ValueError at cli/__init__\.py:\d+\), please report it: broken for the test "
        r"\(PROFKIT_STRICT=1 shows the traceback\)\n",
        line,
    )


def test_the_command_line_shows_the_traceback_in_strict_mode(monkeypatch):
    monkeypatch.setenv(STRICT, "1")
    monkeypatch.setattr(cli, "group", break_down)
    with pytest.raises(ValueError, match="broken for the test"):
        cli.main()


def test_an_interrupt_is_not_reported_as_a_failure(monkeypatch, capsys):
    def interrupt(*_arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["profkit", "rules"])
    monkeypatch.setattr("profkit.rules.all_rules", interrupt)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.strip() == "Aborted!"


def test_a_closed_output_pipe_is_not_reported_as_a_failure(monkeypatch, capsys):
    def break_pipe(*_arguments: Any) -> Any:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("sys.argv", ["profkit", "rules"])
    monkeypatch.setattr("profkit.rules.all_rules", break_pipe)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code != 4
    assert capsys.readouterr().err == ""
