"""Memory snapshots on the command line, alone and with a trace."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.diagnosis.pipeline import diagnose, read_facts
from tests.snapshots import MIB, Recording, at, in_model, moving

BASE = 1 << 40
STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 100}
MM = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 80}

RAN_OUT = "Out of memory: model.py:32 asked for 67.1 MB while 88.1 MB was held, 76 % of it\nactivations\n"


def failed() -> bytes:
    """A program that ran out of memory in its model."""
    recording = Recording()
    recording.put(BASE, 16 * MIB, moving())
    recording.put(BASE + 100 * MIB, 4 * MIB, at(10))
    recording.put(BASE + 200 * MIB, 64 * MIB, in_model(31))
    recording.fail(64 * MIB, 5 * MIB, in_model(32))
    return pickle.dumps({"segments": recording.described(), "device_traces": [recording.events]}, 4)


def profkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", *arguments]
    return subprocess.run(command, cwd=cwd, env=os.environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["snapshot.pickle", "memory.pkl", "whatever"])
def test_a_snapshot_is_diagnosed_whatever_its_name(tmp_path, name):
    (tmp_path / name).write_bytes(failed())
    result = profkit("diagnose", name, "--output", "run", "--fail-on", "high", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith(RAN_OUT)
    assert json.loads((tmp_path / "run" / "diagnosis.json").read_text())["memory"][0]["peak_bytes"] == 84 * MIB
    assert "model.py:32" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    "content", [b"", b"cos\nsystem\n(S'touch owned'\ntR.", pickle.dumps({"a": 1}), pickle.dumps(os.system)]
)
def test_a_file_other_than_a_snapshot_gives_one_line(tmp_path, content):
    (tmp_path / "snapshot.pickle").write_bytes(content)
    result = profkit("diagnose", "snapshot.pickle", cwd=tmp_path)
    assert result.returncode == 2
    assert "snapshot.pickle" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "owned").exists()


def test_a_missing_snapshot_is_a_missing_file(tmp_path):
    result = profkit("diagnose", "snapshot.pickle", cwd=tmp_path)
    assert result.returncode == 2
    assert "no such file" in result.stderr


def write_run(directory: Path) -> None:
    directory.mkdir()
    (directory / "a.pt.trace.json").write_text(json.dumps({"traceEvents": [STEP, MM]}))
    (directory / "run.json").write_text(json.dumps({"trace": "a.pt.trace.json"}))


def test_a_snapshot_in_a_run_directory_is_judged_together_with_the_trace(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "run" / "snapshot.pickle").write_bytes(failed())
    found = diagnose(read_facts(tmp_path / "run"))
    assert found.timing.steps == 1
    assert [one.rule for one in found.findings] == ["out-of-memory"]
    assert found.memory[0].peak_bytes == 84 * MIB


def test_an_unreadable_snapshot_does_not_prevent_judging_the_trace(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "run" / "snapshot.pickle").write_bytes(b"\x80\x04nonsense")
    found = diagnose(read_facts(tmp_path / "run"))
    assert found.timing.steps == 1
    assert any("snapshot of the run was not read" in note for note in found.health)
    assert found.skipped["out-of-memory"] == "no memory snapshot was recorded"


def test_a_run_with_only_a_snapshot_is_judged_by_it(tmp_path):
    """The program ran out of memory before any step was recorded."""
    (tmp_path / "snapshot.pickle").write_bytes(failed())
    run = {"command": ["train.py"], "notes": ["the program failed: OutOfMemoryError"]}
    (tmp_path / "run.json").write_text(json.dumps(run))
    found = diagnose(read_facts(tmp_path))
    assert [one.rule for one in found.findings] == ["out-of-memory"]
    assert found.run.command == ("train.py",)
    assert found.health[0].startswith("the program failed")
