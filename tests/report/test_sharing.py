"""A shared report contains nothing about the machine that it was made on."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from profkit.diagnosis.compare.comparison import Comparison, Difference, Fate, FindingMove, Move, Side, StepTime
from profkit.diagnosis.compare.comparison import Verdict as StepVerdict
from profkit.findings.pictures import Branch, Pictures
from profkit.findings.values import Change, Diagnosis, Finding, HotSpot, Location, RunSummary, Severity
from profkit.report import FORMATS, render, render_comparison
from profkit.report.sharing.anonymous import project_of, share, without_source

HOME = "/home/alice-k"
PROJECT = f"{HOME}/my work/vision"
SECRETS = ("alice-k", "gpu-box-7", "bob.s", HOME, "C:\\Users", "/data/", "/mnt/")
LINE = f'data = load("/mnt/store 2/alice-k/images", "{PROJECT}/x.bin", "/mnt")'


@pytest.fixture
def personal(drawn_diagnosis: Diagnosis, leak: Finding) -> Diagnosis:
    """A diagnosis with personal names and folders in every part."""
    inside = Location(f"{PROJECT}/models/net.py", 31, "step", LINE, "call", ("import os", LINE), 30)
    library = Location(f"{HOME}/.venv/lib/python3.11/site-packages/timm/models/vit.py", 7, "forward")
    elsewhere = Location("C:\\Users\\bob.s\\lab\\prepare.py", 5, "main", "x = 1")
    findings = (
        replace(
            leak,
            location=inside,
            also=(library, elsewhere),
            message=f"Read {PROJECT}/models/net.py, not file:///data/set/a.bin",
            evidence={"file": f"{HOME}/x/y.py", "host": "gpu-box-7.example.org"},
            change=Change(inside.file, 31, LINE, f"{LINE}.detach()"),
        ),
    )
    pictures = replace(drawn_diagnosis.pictures or Pictures(), branches=(Branch(0, "net.py:31", 0, 1, 9, LINE),))
    return replace(
        drawn_diagnosis,
        run=RunSummary(
            ("python", f"{PROJECT}/train.py", "--user=alice-k", "--log=/data/runs/a"),
            "3.11",
            "2.13",
            "cpu",
            None,
            {"trace": "gpu-box-7_41.99.pt.trace.json.gz"},
        ),
        findings=findings,
        skipped={"input-bound": f"{HOME}/loader.json could not be read"},
        health=(f"The file {HOME}/a b.json is damaged: gpu-box-7 was full", "[Errno 2]: '/data/x/y'"),
        hottest=(HotSpot(0.5, inside),),
        pictures=pictures,
    )


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"memory-timeline"}))
def test_no_format_shows_a_folder_a_user_or_a_host(personal: Diagnosis, name: str) -> None:
    """Memory over time contains only labels and numbers."""
    before = render(personal, name, width=4000)
    after = render(share(personal, [Path(PROJECT)], ["alice-k", "gpu-box-7"]), name, width=4000)
    assert any(secret in _text(before) for secret in SECRETS)
    assert [secret for secret in SECRETS if secret in _text(after)] == []


def _text(report: str) -> str:
    return unescape(report).replace("\\\\", "\\")


def test_the_hosts_of_a_launch_are_names_too(launched_diagnosis: Diagnosis) -> None:
    launch = launched_diagnosis.launch
    assert launch is not None
    ranks = tuple(
        replace(one, host="gpu-box-7", source="/data/alice/rank3", notes=("gpu-box-7 was full",))
        for one in launch.ranks
    )
    shared = share(replace(launched_diagnosis, launch=replace(launch, ranks=ranks)))
    for name in ("json", "html", "text"):
        assert "gpu-box-7" not in render(shared, name)
        assert "/data/alice" not in render(shared, name)


def test_names_that_are_not_given_are_taken_from_the_recording(personal: Diagnosis) -> None:
    text = _text(render(share(personal, [Path(PROJECT)]), "json"))
    assert [secret for secret in SECRETS if secret in text] == []


def test_paths_are_shown_within_project_or_library_else_by_file_name(personal: Diagnosis) -> None:
    shared = share(personal, [Path(PROJECT)])
    (finding,) = shared.findings
    places = [finding.location, *finding.also]
    assert [one.file for one in places if one] == ["models/net.py", "timm/models/vit.py", "prepare.py"]
    assert shared.run.command == ("python", "train.py", "--user=…", "--log=a")
    assert finding.message == "Read models/net.py, not a.bin"


def test_text_that_is_neither_path_nor_name_stays(full_diagnosis: Diagnosis, leak: Finding) -> None:
    text = "ratio = (a + b)/c/d  # 3 B/s, and/or, https://pytorch.org/docs/stable/a.html, users of /"
    finding = replace(leak, message=text, location=Location("train.py", 3, "f", text))
    diagnosis = replace(full_diagnosis, findings=(finding,))
    assert share(diagnosis, [Path("/"), Path("/srv/x")], ["user", "a"]) == diagnosis


def test_pictures_stay_unchanged(drawn_diagnosis: Diagnosis) -> None:
    """Encoded columns look like paths."""
    assert share(drawn_diagnosis, [Path("/A")], ["AA"]).pictures == drawn_diagnosis.pictures


def test_without_source_no_line_of_the_program_is_shared(personal: Diagnosis) -> None:
    diagnosis = without_source(personal)
    for name in ("html", "json", "text", "markdown", "sarif"):
        assert "load(" in render(personal, name, width=4000)
        assert "load(" not in render(diagnosis, name, width=4000)
    assert json.loads(render(diagnosis, "json"))["findings"][0]["change"] is None


def test_a_project_begins_where_its_marks_lie(tmp_path: Path) -> None:
    (tmp_path / "project" / "src").mkdir(parents=True)
    script = tmp_path / "project" / "src" / "train.py"
    script.touch()
    (tmp_path / "project" / "pyproject.toml").touch()
    assert project_of(script) == tmp_path / "project"
    assert project_of(tmp_path / "project") == tmp_path / "project"


def test_a_changed_line_that_contained_a_path_is_left_out(personal: Diagnosis) -> None:
    (finding,) = personal.findings
    assert finding.location is not None
    harmless = replace(finding, change=Change(finding.location.file, 31, "a = b", "a = b.detach()"))
    shared = share(replace(personal, findings=(finding, harmless)), [Path(PROJECT)])
    assert [one.change for one in shared.findings] == [None, Change("models/net.py", 31, "a = b", "a = b.detach()")]


@pytest.fixture
def compared() -> Comparison:
    """A comparison with personal names and folders in every part."""
    line = Location(f"{PROJECT}/models/net.py", 31, "step", LINE, "call", ("import os", LINE), 30)
    side = Side((f"{HOME}/runs/gpu-box-7_41.99.pt.trace.json.gz",), ("python", f"{PROJECT}/train.py", "--user=alice-k"))
    time = StepTime(StepVerdict.WORSE, 100, 110, 0.1, 0.05, 0.15, 0.03, "steps", "Welch", reasons=(f"{HOME}/a.json",))
    return Comparison(
        side,
        side,
        (Difference("host", "gpu-box-7", "gpu-box-7"),),
        time,
        (Move("aten::mm", 5, 6, 1, 1),),
        (Move(LINE, 5, 6, 1, 1, line),),
        (FindingMove(Fate.NEW, "retained-graph", line, None, Severity.HIGH),),
    )


@pytest.mark.parametrize("name", ["text", "json", "markdown", "html"])
def test_no_format_of_a_comparison_shows_a_folder_a_user_or_a_host(compared: Comparison, name: str) -> None:
    before = render_comparison(compared, name, width=4000)
    after = render_comparison(share(compared, [Path(PROJECT)]), name, width=4000)
    assert any(secret in _text(before) for secret in SECRETS)
    assert [secret for secret in SECRETS if secret in _text(after)] == []
    assert "models/net.py" in _text(after) or "net.py:31" in _text(after)


@pytest.mark.parametrize("name", ["text", "json", "markdown", "html"])
def test_without_source_a_comparison_keeps_its_figures_and_no_line(compared: Comparison, name: str) -> None:
    bare = without_source(compared)
    assert "load(" in render_comparison(compared, name, width=4000)
    assert "load(" not in render_comparison(bare, name, width=4000)
    assert bare.step_time == compared.step_time
    assert [move.change_ns for move in bare.lines] == [1]
    assert bare.operators == compared.operators
