"""The figures of a run in an event file, read back as TensorBoard does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from profkit.findings.values import Diagnosis, Finding, Kind, MemoryPeak, RunSummary, Saving, Severity, Timing
from profkit.report.json import render_json
from profkit.report.tensorboard.copies import PREPARED_FOLDER, prepare_logdir
from profkit.report.tensorboard.overview import of_median_step
from profkit.report.tensorboard.scalars import PREFIX, figures_of
from tests.report.test_tensorboard import write_trace

READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1])
found.Reload()
points = {tag: found.Tensors(tag) for tag in found.Tags()["tensors"]}
print(json.dumps({tag: [(p.wall_time, p.step, p.tensor_proto.float_val[0]) for p in of] for tag, of in points.items()}))
"""


def finding(rule: str, fraction: float) -> Finding:
    saving = Saving(int(fraction * 1e7), fraction, fraction, fraction)
    return Finding(rule, Kind.FAULT, Severity.HIGH, "", 1, 1.0, "", saving=saving)


def diagnosis(started: str | None = "2026-01-01T10:00:00+00:00") -> Diagnosis:
    timing = Timing(4, 10_000_000, "", unprofiled_step_time_ns=8_000_000)
    found = (
        finding("cat-in-loop", 0.25),
        finding("cat-in-loop", 0.5),
        Finding("free", Kind.FAULT, Severity.LOW, "", 1, 1.0, ""),
    )
    peaks = MemoryPeak("GPU 0", 80_000_000, 2_000_000, 3_000_000, 0), MemoryPeak("host", 0, 0, 0, 5_000_000)
    return Diagnosis(RunSummary((), None, None, None, started), timing, found, {}, (), peaks=peaks)


def test_of_overlapping_findings_of_a_rule_the_largest_counts() -> None:
    assert {tag: figure for tag, figure, _ in figures_of(diagnosis())} == {
        "step_time_ms/recorded": 10.0,
        "step_time_ms/without_profiler": 8.0,
        "saving_percent/cat-in-loop": 50.0,
        "peak_memory_MB/GPU 0": 2.0,
        "peak_memory_MB/host": 5.0,
    }


def test_event_files_lie_beside_the_copies_and_follow_the_diagnosis(tmp_path: Path) -> None:
    write_trace(tmp_path / "one" / "a.pt.trace.json")
    (tmp_path / "one" / "diagnosis.json").write_text(render_json(diagnosis()))
    before = sorted(path.name for path in (tmp_path / "one").iterdir())
    prepared = tmp_path / PREPARED_FOLDER
    assert prepare_logdir(tmp_path, prepared) == [prepared / "one"]
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == before
    (first,) = (prepared / "one").glob(f"{PREFIX}*")
    command = [sys.executable, "-W", "ignore", "-c", READER, first]
    read = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '"step_time_ms/recorded": [[1767261600.0, 0, 10.0]]' in read.stdout

    prepare_logdir(tmp_path, prepared)
    assert list((prepared / "one").glob(f"{PREFIX}*")) == [first]
    (tmp_path / "one" / "diagnosis.json").unlink()
    prepare_logdir(tmp_path, prepared)
    assert list(prepared.rglob(f"{PREFIX}*")) == []


def test_a_broken_or_missing_diagnosis_only_loses_the_scalars(tmp_path: Path) -> None:
    for name in ("broken", "none"):
        write_trace(tmp_path / name / "a.pt.trace.json")
    (tmp_path / "broken" / "diagnosis.json").write_text("{")
    prepared = tmp_path / PREPARED_FOLDER
    assert prepare_logdir(tmp_path, prepared) == [prepared / "broken", prepared / "none"]
    assert list(prepared.rglob(f"{PREFIX}*")) == []


def test_copies_of_an_older_profkit_are_removed_and_other_files_kept(tmp_path: Path) -> None:
    write_trace(tmp_path / "one" / "a.pt.trace.json")
    older, other = (
        write_trace(tmp_path / f".profkit-tensorboard-{name}" / "one" / "a.pt.trace.json") for name in ("1", "mine")
    )
    (tmp_path / ".profkit-tensorboard-1" / ".gitignore").write_text("*\n")
    prepare_logdir(tmp_path, tmp_path / PREPARED_FOLDER)
    assert not older.exists()
    assert other.exists()


def test_the_overview_describes_the_median_step() -> None:
    rows = [["4", 10.0, "tip", 90.0], ["5", 20.0, "tip", 180.0], ["6", 30.0, "tip", 870.0]]
    parts = [{"name": "Kernel", "value": 20, "extra": 5.0}, {"name": "Other", "value": 380, "extra": 95.0}]
    whole = {"name": "Average Step Time", "value": 400, "extra": 100, "children": parts}
    (shown,) = of_median_step({"steps": {"rows": rows}, "performance": [whole]})["performance"]
    assert (shown["name"], shown["value"], shown["extra"]) == ("Median of 3 steps", 200, 100)
    assert [part["value"] for part in shown["children"]] == [10, 190]
    empty = {"steps": {"rows": []}, "performance": [whole]}
    assert of_median_step(empty) == empty
