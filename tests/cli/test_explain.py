"""``profkit explain`` of a run: which one, which finding, and what is said where there is none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.traces import json_of, op, step

RECORDED = Path(__file__).parents[2] / "traces" / "recorded" / "nvidia-h100-80gb-hbm3" / "cpu-tensor-then-cuda"


def explain(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", "explain", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED / "pitfall", tmp_path / "run"))


def test_a_run_without_a_diagnosis_is_diagnosed_and_nothing_is_written(tmp_path: Path, run: Path) -> None:
    before = sorted(run.iterdir())
    shown = explain(run, "--finding", "1", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("1. host-created-tensor, cpu_tensor_then_cuda.py:38\n")
    assert "taken out of a step" in shown.stdout
    assert "aten::rand" in shown.stdout
    assert "How host-created-tensor estimates" in shown.stdout
    assert sorted(run.iterdir()) == before


def test_a_saved_diagnosis_explains_the_same(tmp_path: Path, run: Path) -> None:
    fresh = explain(run, cwd=tmp_path).stdout
    subprocess.run([sys.executable, "-m", "profkit", "diagnose", run], cwd=tmp_path, capture_output=True, check=True)
    assert explain(run, cwd=tmp_path).stdout == fresh
    assert explain(run / "diagnosis.json", cwd=tmp_path).stdout == fresh


def test_a_diagnosis_of_an_earlier_version_has_no_account(tmp_path: Path, run: Path) -> None:
    subprocess.run([sys.executable, "-m", "profkit", "diagnose", run], cwd=tmp_path, capture_output=True, check=True)
    saved = json.loads((run / "diagnosis.json").read_text())
    for finding in saved["findings"]:
        del finding["account"]
    (run / "diagnosis.json").write_text(json.dumps(saved))
    shown = explain(run, "--finding", "1", cwd=tmp_path)
    assert shown.returncode == 0
    assert "No time is predicted, or an earlier version of profkit wrote this" in " ".join(shown.stdout.split())


def test_a_finding_that_is_not_there_is_named(tmp_path: Path, run: Path) -> None:
    shown = explain(run, "--finding", "99", cwd=tmp_path)
    assert shown.returncode == 2
    assert "there is no finding 99; it has" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_trace_without_findings_says_so(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(json_of([step(0, 0, 100), op("aten::mm", 5, 80), step(1, 100, 100)]))
    shown = explain("trace.json", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (
        2,
        "profkit: trace.json: nothing was found there, so there is no saving to explain\n",
    )


@pytest.mark.parametrize("missing", ["runs/none", "none.json.gz"])
def test_a_path_that_is_not_there_is_no_rule(tmp_path: Path, missing: str) -> None:
    shown = explain(missing, cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (2, f"profkit: {missing}: no such file or directory\n")


def test_a_folder_named_like_a_rule_does_not_hide_its_page(tmp_path: Path) -> None:
    (tmp_path / "launch-bound").mkdir()
    assert explain("launch-bound", cwd=tmp_path).stdout.startswith("launch-bound (opportunity)\n")
