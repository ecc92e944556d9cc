"""Scenarios that need a GPU are shown from recordings that come with profkit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.cli._targets import find_recording
from profkit.core.errors import UsageError
from profkit.diagnosis import catalogue
from profkit.diagnosis.catalogue import find_scenario, recordings_root

RECORDED = sorted((path.parent.name, path.name) for path in (recordings_root() or Path()).glob("*/*/*/"))


def profkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profkit", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_a_scenario_that_needs_a_gpu_is_shown_from_its_recording(tmp_path):
    result = profkit("diagnose", "cpu-tensor-then-cuda", "--device", "recorded", "--output", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "cpu-tensor-then-cuda needs a GPU: showing a recording made elsewhere" in result.stderr
    assert "NVIDIA H200" in result.stdout
    diagnosis = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    first = diagnosis["findings"][0]
    assert (first["rule"], first["severity"], first["location"]["line"]) == ("host-created-tensor", "high", 38)


def test_a_scenario_that_needs_no_gpu_is_not_said_to_need_one(tmp_path):
    result = profkit("diagnose", "gelu-by-hand", "--device", "recorded", "--output", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "profkit: gelu-by-hand: showing a recording made elsewhere" in result.stderr


@pytest.mark.parametrize(("name", "variant"), RECORDED)
def test_a_recording_shows_the_pitfall_and_not_the_fix(name, variant):
    from profkit.diagnosis.pipeline import diagnose_path

    triggers = find_scenario(name).triggers
    diagnosis = diagnose_path(find_recording(name, variant))
    found = {
        (one.rule, one.location.line) for one in diagnosis.findings if one.rule in triggers and one.location is not None
    }
    marked = {(rule, line) for line, rule in find_scenario(name).expected["pitfall"]}
    if variant == "pitfall" and find_scenario(name).needs_measuring:
        assert set(triggers) <= set(diagnosis.skipped)
    elif variant == "pitfall":
        assert found & marked
    else:
        assert not found & {(rule, line) for rule, line in marked}


def test_every_scenario_that_needs_a_gpu_has_both_recordings_or_says_that_they_are_missing():
    """No recording is invented: a scenario written without a GPU waits for somebody who has one."""
    for name in [one.name for one in catalogue.list_scenarios() if one.needs_gpu]:
        of_both = {(name, variant) for variant in ("pitfall", "fix")}
        if not of_both & set(RECORDED):
            with pytest.raises(UsageError, match=f"profkit record {name}"):
                find_recording(name, "pitfall")
        else:
            assert of_both <= set(RECORDED)


def test_of_several_recordings_the_latest_is_shown(tmp_path, monkeypatch):
    source = find_recording("gelu-by-hand", "pitfall")
    for gpu, started in (("b-gpu", "2026-01-01T00:00:00+00:00"), ("a-gpu", "2026-02-01T00:00:00+00:00")):
        copy = tmp_path / gpu / "gelu-by-hand" / "pitfall"
        shutil.copytree(source, copy)
        run = json.loads((copy / "run.json").read_text())
        (copy / "run.json").write_text(json.dumps({**run, "started": started}))
    monkeypatch.setattr(catalogue, "recordings_root", lambda: tmp_path)
    assert find_recording("gelu-by-hand", "pitfall").parts[-3] == "a-gpu"
