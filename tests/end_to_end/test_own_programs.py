"""The program itself under profkit: its output, exit status and errors, and programs without steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.running import Outcome, diagnose, diagnose_forked, judge, record_program
from tests.forks import Ended, Forks
from tests.recordings import Recordings

TRAINING = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.detach().numpy().tobytes().hex())
print("arguments", sys.argv[1:], __name__)
{end}
"""
pytestmark = pytest.mark.slow


def program(steps: int = 12, end: str = "") -> dict[str, str]:
    return {"train.py": TRAINING.format(steps=steps, end=end)}


def run_both_ways(recordings: Recordings, end: str, *arguments: str) -> tuple[Ended, Outcome]:
    """First without profkit, then recorded, in the same directory."""
    under_profkit = ["-m", "profkit", "record", "--output", "run", "train.py", "--", *arguments]
    kept = recordings.start(["train.py", *arguments], under_profkit, writes=program(end=end))
    return kept.before[0], judge(kept)


def test_output_and_results_are_the_same_as_without_profkit(recordings: Recordings) -> None:
    alone, outcome = run_both_ways(recordings, "", "--x", "1")
    assert outcome.status == alone.returncode == 0
    assert outcome.stdout.startswith(alone.stdout)
    assert outcome.diagnosis["timing"]["steps"] >= 3


def test_a_program_that_raises_is_diagnosed_and_its_traceback_shown_unchanged(recordings: Recordings) -> None:
    alone, outcome = run_both_ways(recordings, "raise KeyError('the end')")
    assert outcome.status == 3
    assert alone.stderr in outcome.stderr
    assert outcome.diagnosis["timing"]["steps"] >= 3


def test_a_program_that_exits_with_success_is_a_success(recordings: Recordings) -> None:
    outcome = judge(record_program(recordings, "train.py", writes=program(end="sys.exit(0)")))
    assert outcome.status == 0
    assert outcome.diagnosis["timing"]["steps"] >= 3


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 6])
def test_a_short_program_still_gets_a_diagnosis(recordings: Recordings, steps: int) -> None:
    outcome = judge(record_program(recordings, "train.py", writes=program(steps)))
    assert "Traceback" not in outcome.stderr
    assert outcome.status in (0, 2)
    if steps:
        assert outcome.status == 0
        assert outcome.diagnosis["timing"]["steps"] >= 1


def test_a_program_without_any_operator_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "nothing.py"
    path.write_text("print('hello')\n")
    outcome = diagnose(str(path), directory=tmp_path)
    assert outcome.stdout.startswith("hello\n")
    assert "Traceback" not in outcome.stderr
    assert outcome.status == 2
    assert "nothing was recorded" in outcome.stderr


def test_a_program_that_fails_before_recording_is_reported_as_failed(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("raise ValueError('at once')\n")
    outcome = diagnose(str(path), directory=tmp_path)
    assert outcome.status == 3
    assert "ValueError: at once" in outcome.stderr
    assert "nothing was recorded" in outcome.stderr


def test_a_module_runs_as_with_python_dash_m(tmp_path: Path, forks: Forks) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(TRAINING.format(steps=12, end=""))
    outcome = diagnose_forked(forks, "-m", "package.train", "--", "--epochs", "2", directory=tmp_path)
    assert outcome.status == 0, outcome.stderr
    assert "arguments ['--epochs', '2'] __main__" in outcome.stdout


@pytest.mark.races(why="the severity follows from a measured saving")
def test_fail_on_turns_a_fault_into_exit_status_1(tmp_path: Path, forks: Forks) -> None:
    loop = "for i in range(400):\n        total = total + loss.detach() * torch.ones(64)[i % 64]"
    body = TRAINING.replace("    print(step", f"    total = torch.zeros(())\n    {loop}\n    print(step")
    path = tmp_path / "slow.py"
    path.write_text(body.format(steps=12, end=""))
    assert diagnose_forked(forks, str(path), "--fail-on", "high", directory=tmp_path).status == 1
