"""`--format perfetto` writes a file into the run directory and its path to stdout."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snapshots import MIB, Recording, at
from tests.traces import json_of, op, step


def profkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", "diagnose", *arguments, "--format", "perfetto"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json_of([step(1, 0, 50), op("aten::mul", 10, 20)])))
    return path


def test_the_path_of_the_copy_is_printed_and_the_trace_stays(tmp_path: Path, trace: Path) -> None:
    before = trace.read_bytes()
    result = profkit(trace.name, "--output", "run", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "run/perfetto.json.gz\n")
    assert trace.read_bytes() == before
    events = json.loads(gzip.decompress((tmp_path / "run" / "perfetto.json.gz").read_bytes()))["traceEvents"]
    assert [event["name"] for event in events][-2:] == ["ProfilerStep#1", "aten::mul"]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"diagnosis.json", "report.html", "perfetto.json.gz"}


def test_the_copy_is_not_taken_for_the_trace_when_diagnosing_again(tmp_path: Path, trace: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    trace.rename(run / "host_1.2.pt.trace.json.gz")
    for _ in range(2):
        result = profkit("run", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (0, "run/perfetto.json.gz\n")


def test_a_snapshot_has_no_trace_to_copy(tmp_path: Path) -> None:
    recording = Recording()
    recording.put(1 << 40, 16 * MIB, at(3))
    content = pickle.dumps({"segments": recording.described(), "device_traces": [recording.events]}, 4)
    (tmp_path / "snapshot.pickle").write_bytes(content)
    result = profkit("snapshot.pickle", "--output", "run", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("profkit: --format perfetto copies a trace, and snapshot.pickle is only a memory")
