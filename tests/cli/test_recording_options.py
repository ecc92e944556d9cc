"""The options that `profkit diagnose` and `profkit record` share: where they apply, and which values are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profkit.run.directory import find_trace, load_run
from tests.forks import Forks

PROGRAM = """\
import sys, torch
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    (parameter * 2).sum().backward()
    optimizer.step()
print(sys.argv[1:])
sys.exit(int(sys.argv[1]))
"""
ASKED = [["--steps-from", "epoch"], ["--at-step", "9"], ["--stop-after-recording"]]


def profkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profkit", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked[0])
@pytest.mark.parametrize("command", [["diagnose", "loss-list"], ["diagnose", "trace.json"], ["record", "loss-list"]])
def test_recording_options_are_for_programs_only(tmp_path: Path, command: list[str], asked: list[str]) -> None:
    (tmp_path / "trace.json").write_text("{}")
    result = profkit(*command, *asked, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"profkit: {asked[0]}: not for a ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("wrong", [["--steps-from", "steps"], ["--at-step", "-1"], ["--at-step", "first"]])
def test_invalid_values_are_refused(tmp_path: Path, wrong: list[str]) -> None:
    (tmp_path / "program.py").touch()
    result = profkit("diagnose", "program.py", *wrong, cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 5])
def test_record_does_not_judge(tmp_path: Path, forks: Forks, status: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["record", "program.py", "--output", "run", "--at-step", "1", "--", str(status), "--output"]
    ended = forks.run("tests.end_to_end.recording:main", options, tmp_path)
    assert ended.stdout == f"['{status}', '--output']\n"
    assert ended.returncode == (3 if status else 0), ended.stderr
    assert ended.stderr.splitlines()[0] == "run"
    assert load_run(tmp_path / "run").exit_status == status
    assert find_trace(tmp_path / "run") is not None
    assert not (tmp_path / "run" / "diagnosis.json").exists()
