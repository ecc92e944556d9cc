"""Which of several runs in a directory is diagnosed, and which findings fail the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.cli._output import print_report
from profkit.cli._targets import latest_run
from profkit.diagnosis.settings import Settings
from profkit.findings.values import Diagnosis, Finding, Kind, RunSummary, Severity, Timing
from profkit.run.directory import RUN_FILE, Run, save


def _run(directory: Path, started: str) -> Path:
    directory.mkdir(parents=True)
    save(directory, RUN_FILE, Run(started=started))
    (directory / "a.pt.trace.json").touch()
    return directory


def test_a_directory_of_runs_stands_for_the_latest_run(tmp_path: Path) -> None:
    _run(tmp_path / "train" / "b", "2026-01-01T10:00:00")
    latest = _run(tmp_path / "train" / "a", "2026-01-02T10:00:00")
    assert latest_run(tmp_path) == latest
    assert latest_run(tmp_path / "train") == latest


def test_a_run_stands_for_itself(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", "2026-01-01T10:00:00")
    _run(run / "rank0", "2026-01-02T10:00:00")
    assert latest_run(run) == run


def test_a_directory_without_runs_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty", RUN_FILE, Run(started="2026-01-01T10:00:00"))
    assert latest_run(tmp_path) == tmp_path
    assert latest_run(tmp_path / "absent") == tmp_path / "absent"


FAULT, CHANCE = Kind.FAULT, Kind.OPPORTUNITY


@pytest.mark.parametrize(
    ("kind", "fault", "opportunity", "fails"),
    [
        (FAULT, "medium", None, True),
        (FAULT, "low", None, True),
        (FAULT, "high", None, False),
        (FAULT, None, "low", False),
        (CHANCE, "low", None, False),
        (CHANCE, None, "medium", True),
        (CHANCE, None, "high", False),
        (CHANCE, None, None, False),
    ],
)
def test_a_finding_fails_the_command_from_the_limit_of_its_kind_on(
    kind: Kind, fault: str | None, opportunity: str | None, fails: bool
) -> None:
    finding = Finding("a", kind, Severity.MEDIUM, "", 1, 1.0, "")
    assert Settings(fail_on=fault, fail_on_opportunity=opportunity).fails(finding) is fails


def test_a_finding_that_fails_the_command_fails_in_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    finding = Finding("a-rule", FAULT, Severity.MEDIUM, "", 1, 1.0, "")
    diagnosis = Diagnosis(RunSummary((), None, None, None, None), Timing(1, 1, ""), (finding,), {}, ())
    for level, failures in (("high", 0), ("medium", 1)):
        print_report(diagnosis, "junit", Settings(fail_on=level))
        shown = capsys.readouterr().out
        assert f'failures="{failures}"' in shown
        assert '<testcase name="launch-bound"' in shown
