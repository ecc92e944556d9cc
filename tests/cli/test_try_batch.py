"""`profkit diagnose --try-batch`: where it applies, and what it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import Forks

PROGRAM = """\
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.randn(1 << 13, 8)), batch_size=4):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
with open("runs", "a") as file:
    file.write("one")
print("ended")
"""


def profkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profkit", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["loss-list", "--try-batch"], "--try-batch: not for a scenario, only for a script or a module"),
        (["trace.json", "--try-batch"], "--try-batch: not for a trace, only for a script or a module"),
        (["loss-list", "--link", "."], "--link: not for a scenario, only for a script or a module"),
        (["train.py", "--link", "."], "--link: only with --try-batch, which copies the program's folder"),
        (["train.py", "--try-batch", "--nproc", "2"], "--try-batch: not with --nproc, as a trial is a single process"),
    ],
)
def test_trials_are_for_a_single_program(tmp_path: Path, asked: list[str], why: str):
    (tmp_path / "trace.json").write_text("{}")
    (tmp_path / "train.py").write_text(PROGRAM)
    result = profkit("diagnose", *asked, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"profkit: {why}\n")


@pytest.mark.slow
@pytest.mark.parametrize("asked", [(), ("--format", "json")])
def test_the_table_ends_the_report_and_the_program_itself_ran_once(
    tmp_path: Path, forks: Forks, asked: tuple[str, ...]
):
    """Once in processes of its own; where another format is asked for, in forks."""
    (tmp_path / "train.py").write_text(PROGRAM)
    command = ["diagnose", "--try-batch", *asked, "train.py"]
    forked = "tests.diagnosis.fixing.trying:command"
    result = forks.run(forked, command, tmp_path) if asked else profkit(*command, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    told, other = (result.stderr, result.stdout) if asked else (result.stdout, result.stderr)
    assert "Larger batches, tried\n  samples  a second  times  predicted" in told
    assert "Larger batches" not in other
    assert (tmp_path / "runs").read_text() == "one"
    assert result.stdout.startswith("ended\n")
