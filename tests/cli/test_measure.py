"""``profkit diagnose --measure``, from the command line to the files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from profkit.core.processor import processor_name
from profkit.run.directory import RUN_FILE, Host, Run, save
from tests.traces import json_of, op, step

TRACE = "host_1.2.pt.trace.json"


def recording(directory: Path, processor: str) -> Path:
    """A run directory with doubles in 60 of each 100 µs."""
    shapes = {"dims": [[64, 64], [64, 64]], "types": ["double", "double"]}
    events = [
        event for i in range(3) for event in (step(i, 100 * i, 100), op("aten::linear", 100 * i + 10, 60, **shapes))
    ]
    directory.mkdir()
    (directory / TRACE).write_bytes(json_of(events))
    save(directory, RUN_FILE, Run(trace=TRACE, device="cpu", host=Host(2, 1, 1 << 30, processor)))
    return directory


def diagnosis(directory: Path, *options: str) -> dict:
    command = [sys.executable, "-m", "profkit", "diagnose", str(directory), "--format", "json", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory.parent)
    return json.loads(result.stdout)


def test_a_finding_is_measured_only_with_the_option(tmp_path: Path) -> None:
    directory = recording(tmp_path / "run", processor_name())
    (modelled,) = diagnosis(directory)["findings"]
    assert "measured_factor" not in modelled["evidence"]
    assert modelled["saving"]["fraction"] == 0.3
    found = diagnosis(directory, "--measure")
    (measured,) = found["findings"]
    if "measured_factor" not in measured["evidence"]:  # other tests had the processor
        assert any("other programs had the processor" in note for note in found["health"])
        assert measured == modelled
        return
    factor = measured["evidence"]["measured_factor"]
    assert abs(measured["saving"]["fraction"] - max(0.0, 0.6 * (1 - factor))) < 1e-3
    assert json.loads((directory / "diagnosis.json").read_text())["findings"] == [measured]


def test_the_report_on_another_machine_says_why_nothing_was_measured(tmp_path: Path) -> None:
    directory = recording(tmp_path / "run", "Z80")
    found = diagnosis(directory, "--measure")
    assert found["findings"][0]["saving"]["fraction"] == 0.3
    assert "the recording was made on another processor, Z80" in found["health"][-1]
