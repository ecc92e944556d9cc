"""Files of a recording from elsewhere, found in the working directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit.core.errors import UsageError
from profkit.findings.values import Change, Diagnosis, Finding, Location
from profkit.report.github import render_github
from profkit.report.sharing.checkout import map_paths, parse_path_map, path_in_checkout

TEXT = "import torch\n\nfor x in xs:\n    losses.append(loss)\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text(TEXT)
    (tmp_path / "train.py").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "source", "found"),
    [
        ("{here}/train.py", "whatever", "train.py"),
        ("/app/models/net.py", "losses.append(loss)", "models/net.py"),
        ("/app/models/net.py", "losses.append(  )", "/app/models/net.py"),
        ("/app/models/net.py", "", "models/net.py"),
        ("/app/train.py", "losses.append(loss)", "train.py"),
        ("/app/train.py", "", "/app/train.py"),
        ("C:\\app\\models\\net.py", "losses.append(loss)", "models/net.py"),
        ("/app/other.py", "losses.append(loss)", "/app/other.py"),
        ("/app/../train.py", "losses.append(loss)", "/app/../train.py"),
    ],
)
def test_the_longest_end_of_a_path_is_found_if_the_text_is_the_same(checkout, file, source, found):
    assert path_in_checkout(file.format(here=checkout), 4, source) == found


def test_annotations_land_in_the_checkout(checkout, clean_diagnosis: Diagnosis, leak: Finding):
    place = Location("/app/models/net.py", 4, "f", "losses.append(loss)")
    text = render_github(replace(clean_diagnosis, findings=(replace(leak, location=place),)))
    assert "file=models/net.py,line=4" in text


def test_a_path_map_moves_every_place_and_reads_the_source(checkout, clean_diagnosis: Diagnosis, leak: Finding):
    finding = replace(
        leak,
        location=Location("/app/models/net.py", 4, "f"),
        also=(Location("/app2/train.py", 3, "f", "kept"),),
        change=Change("/app/models/net.py", 4, "a", "b"),
    )
    (found,) = map_paths(replace(clean_diagnosis, findings=(finding,)), [("/app", ".")]).findings
    assert found.location is not None
    assert (found.location.file, found.location.source) == ("./models/net.py", "losses.append(loss)")
    assert (found.location.around, found.location.around_from) == (tuple(TEXT.splitlines()), 1)
    assert found.also == finding.also, "the name of another folder begins alike"
    assert found.change == Change("./models/net.py", 4, "a", "b")


def test_the_longest_prefix_wins_and_nothing_else_is_touched(clean_diagnosis: Diagnosis, leak: Finding):
    diagnosis = replace(clean_diagnosis, findings=(replace(leak, location=Location("/a/b/c.py", 1, "f", "/a/b/d.py")),))
    (found,) = map_paths(diagnosis, [("/a", "x"), ("/a/b", "y")]).findings
    assert found.location == Location("y/c.py", 1, "f", "/a/b/d.py")
    assert map_paths(diagnosis, []) is diagnosis


@pytest.mark.parametrize("text", ["", "a", "=b", "a="])
def test_a_path_map_needs_both_sides(text):
    with pytest.raises(UsageError, match="give OLD=NEW"):
        parse_path_map(text)


def test_slashes_at_the_ends_do_not_matter():
    assert parse_path_map("/app/=src/") == ("/app", "src")
    assert parse_path_map("/=/mnt") == ("/", "/mnt")
