"""How a program ends and which process does its work, as the exit status and the verdict show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.run.directory import load_run
from tests.end_to_end.running import diagnose_forked, judge, record_program
from tests.forks import Forks
from tests.recordings import Recordings

pytestmark = pytest.mark.slow

TRAINING = """\
import ctypes, os, sys
import torch

def train(steps):
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(64, 64)).square().mean().backward()
        optimizer.step()

"""


@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        ("sys.exit(5)", 5, "exit status 5"),
        ("raise ValueError('no more')", 1, "exit status 1"),
        ("ctypes.string_at(0)", 139, "exit status 139 (SIGSEGV)"),
    ],
)
def test_a_failed_program_is_diagnosed_with_exit_status_3_and_its_own_is_reported(
    recordings: Recordings, end: str, status: int, text: str
) -> None:
    program = {"program.py": f"{TRAINING}train(12)\n{end}\n"}
    outcome = judge(record_program(recordings, "program.py", writes=program))
    assert outcome.status == 3
    assert outcome.stderr.splitlines()[-1] == f"profkit: the program itself failed with {text}"
    assert load_run(outcome.run).exit_status == status
    assert outcome.diagnosis["timing"]["steps"] >= 1


def test_a_crash_at_import_is_not_judged(tmp_path: Path, forks: Forks) -> None:
    (tmp_path / "program.py").write_text("import torch\nimport no_such_module\n")
    outcome = diagnose_forked(forks, str(tmp_path / "program.py"), directory=tmp_path)
    assert outcome.status == 3
    assert " ".join(outcome.stdout.split()).startswith(
        "Cannot judge: the program failed before any step of it was recorded: ModuleNotFoundError: "
    )


LAUNCHES = """\
import subprocess, sys
import torch
import torch.multiprocessing

def burn(_):
    import time
    while time.process_time() < 3:
        torch.rand(64, 64) @ torch.rand(64, 64)

if __name__ == "__main__":
    if sys.argv[1] == "spawned":
        torch.multiprocessing.spawn(burn, nprocs=1)
    elif sys.argv[1] == "script":
        subprocess.run([sys.executable, __file__, "work"], check=True)
    elif sys.argv[1] == "helper":
        subprocess.run([sys.executable, "-c", "print('helped')"], check=True)
        burn(0)
    else:
        burn(0)
"""


@pytest.mark.parametrize(("how", "is_launcher"), [("spawned", True), ("script", True), ("helper", False)])
def test_a_program_that_leaves_the_work_to_its_children_is_not_judged(
    recordings: Recordings, how: str, is_launcher: bool
) -> None:
    outcome = judge(record_program(recordings, "program.py", "--", how, writes={"program.py": LAUNCHES}, alone=True))
    assert outcome.status == 0, outcome.stderr
    text = outcome.diagnosis["verdict"]["text"]
    assert text.startswith("Cannot judge: only the program that starts the work was recorded") == is_launcher, text
