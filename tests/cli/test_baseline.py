"""Known findings fail no check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from profkit.cli.baseline import command
from profkit.core.errors import UnreadableInput, UsageError
from profkit.diagnosis.known import is_known, key_of, read_baseline, write_baseline
from profkit.diagnosis.settings import Settings, read_settings
from profkit.findings.values import Diagnosis, Finding, Kind, Location, RunSummary, Severity, Timing
from profkit.report.json import render_json


def finding(severity: Severity = Severity.MEDIUM, line: int = 3, source: str = "x = f(y)") -> Finding:
    return Finding("a-rule", Kind.FAULT, severity, "message", 1, 0.9, "fix", Location("/a/b.py", line, "main", source))


def baseline(folder: Path, *findings: Finding) -> Path:
    write_baseline(folder / "known.json", findings)
    return folder / "known.json"


@pytest.mark.parametrize(
    ("now", "known"),
    [
        pytest.param(finding(), True, id="the same"),
        pytest.param(finding(line=9), True, id="moved"),
        pytest.param(finding(Severity.LOW), True, id="less"),
        pytest.param(finding(Severity.HIGH), False, id="worse"),
        pytest.param(finding(source="x = g(y)"), False, id="another line"),
        pytest.param(replace(finding(), location=None), False, id="no line"),
    ],
)
def test_a_finding_is_known_by_rule_place_and_text(tmp_path, now, known):
    assert is_known(now, read_baseline(baseline(tmp_path, finding()))) is known
    settings = Settings().overridden((), (), "low", None, tmp_path / "known.json")
    assert settings.fails(now) is not known


def test_of_two_alike_the_worse_is_kept_and_information_is_not(tmp_path):
    path = baseline(tmp_path, finding(), finding(Severity.HIGH), finding(Severity.INFO, source="y"))
    assert read_baseline(path) == {key_of(finding()): Severity.HIGH}


def test_the_command_notes_what_a_run_says(tmp_path):
    diagnosis = Diagnosis(RunSummary((), None, None, None, None), Timing(1, 1, ""), (finding(),), {}, ())
    (tmp_path / "diagnosis.json").write_text(render_json(diagnosis))
    result = CliRunner().invoke(command, [str(tmp_path / "diagnosis.json"), "--output", str(tmp_path / "known.json")])
    assert result.output == f"1 known finding in {tmp_path / 'known.json'}\n"
    assert len(read_baseline(tmp_path / "known.json")) == 1


def test_the_settings_of_a_project_name_its_baseline(tmp_path):
    baseline(tmp_path, finding())
    (tmp_path / "pyproject.toml").write_text("[tool.profkit]\nfail-on = 'low'\nbaseline = 'known.json'\n")
    settings = read_settings(tmp_path)
    assert not settings.fails(finding())
    assert settings.fails(finding(source="new"))
    (tmp_path / "pyproject.toml").write_text("[tool.profkit]\nbaseline = 1\n")
    with pytest.raises(UsageError, match="give the name of a file"):
        read_settings(tmp_path)


def test_a_baseline_that_is_missing_or_damaged_is_told(tmp_path):
    with pytest.raises(UnreadableInput, match="no such baseline; `profkit baseline RUN` makes one"):
        read_baseline(tmp_path / "known.json")
    (tmp_path / "known.json").write_text("[]")
    with pytest.raises(UnreadableInput, match="is not what profkit wrote"):
        read_baseline(tmp_path / "known.json")
