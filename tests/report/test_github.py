"""Findings as annotations of a GitHub workflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit.findings.values import Diagnosis, Finding, Kind
from profkit.report.github import render_github


def test_each_serious_finding_is_an_annotation_at_its_line(full_diagnosis: Diagnosis) -> None:
    verdict, fault, chance = render_github(full_diagnosis).splitlines()
    assert verdict == (
        "::notice title=profkit::1 fault costs 43 %25 (30 to 50) of the step: retained-graph at train.py:31"
    )
    assert fault.startswith("::error title=profkit retained-graph,file=train.py,line=31::The list `losses` keeps")
    assert chance.startswith("::notice title=profkit launch-bound,file=/home/user/models/network.py,line=12::")


def test_a_file_of_the_repository_is_named_relative_to_it(full_diagnosis: Diagnosis, leak: Finding) -> None:
    assert leak.location is not None
    here = replace(leak, location=replace(leak.location, file=str(Path.cwd() / "a" / "train.py")))
    assert ",file=a/train.py,line=31::" in render_github(replace(full_diagnosis, findings=(here,)))


def test_text_cannot_inject_another_command(full_diagnosis: Diagnosis, hostile_finding: Finding) -> None:
    attack = replace(hostile_finding, message="a\n::error::b", rule="x,file=y::z")
    lines = render_github(replace(full_diagnosis, findings=(attack,), health=())).splitlines()
    assert len(lines) == 2
    assert "title=profkit x%2Cfile=y%3A%3Az" in lines[1]
    assert "::a \\x3a:error::b" in lines[1]


def test_a_change_of_the_line_alone_is_a_suggestion(
    full_diagnosis: Diagnosis, leak: Finding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("for x in data:\n    losses.append(loss)\n")
    assert leak.location is not None
    here = replace(leak, location=replace(leak.location, line=2))
    line = render_github(replace(full_diagnosis, findings=(here,))).splitlines()[1]
    assert line.endswith("%0A```suggestion%0A    losses.append(loss.detach())%0A```")
    chance = replace(here, kind=Kind.OPPORTUNITY)
    assert "suggestion" not in render_github(replace(full_diagnosis, findings=(chance,)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("for x in data:\n\tlosses.append(loss)\n", "%0A\tlosses.append(loss.detach())%0A"),
        ("for x in data:\r\n    losses.append(loss)\r\n", ""),  # a review would take the line's end away
        ("\nlosses.append(loss)  # \u200b\n", ""),
    ],
)
def test_a_suggestion_is_what_the_file_would_hold(
    full_diagnosis: Diagnosis, leak: Finding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_bytes(text.encode())
    assert leak.location is not None
    here = replace(leak, location=replace(leak.location, line=2))
    line = render_github(replace(full_diagnosis, findings=(here,))).splitlines()[1]
    assert (f"```suggestion{shown}```" in line) if shown else ("suggestion" not in line)
