"""`profkit fix`: what it refuses at once, and two real programs from end to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COLLECTING = """\
import gc
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
import settled
kept = [[number] for number in range(200_000)]
for step in range(12):
\tloss = model(torch.randn(4, 8)).pow(2).mean()
\toptimizer.zero_grad()
\tloss.backward()
\toptimizer.step()
\tfor _ in range(2):
\t\tprint(step, end=" ")
\t\tgc.collect()  # again
print(f"loss {loss.item():.6f}")
"""
SETTLED = "import gc\n\ngc.freeze()\n"
"""From there on a collection looks at what the program keeps, no longer at all that PyTorch is made of: that takes a
hundredth of a second instead of two tenths."""
COUNTING = """\
import gc
import torch

torch.manual_seed(0)
freed = []
gc.callbacks.append(lambda phase, info: freed.append(phase) if info["generation"] == 2 else None)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
gc.freeze()  # else each collection takes two tenths of a second
kept = [[number] for number in range(200_000)]
for step in range(12):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gc.collect()
print(f"{len(freed) > 20} {loss.item():.6f}")
"""


def fix(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", "fix", *arguments]
    shell = {**os.environ, "PWD": str(cwd)}
    return subprocess.run(command, cwd=cwd, env=shell, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "profkit: give a script.py, a run directory, or -m MODULE (see `profkit fix --help`)"),
        (("trace.json",), "profkit: trace.json: fix takes a script.py, a run directory, or -m MODULE"),
        (("empty",), "profkit: empty: does not say which program it is a recording of"),
        (("train.py", "--select", "graph-brake"), "profkit: the command line: no rule is called 'graph-brake'"),
    ],
)
def test_what_cannot_be_fixed_is_told_in_one_line(tmp_path, arguments, said):
    (tmp_path / "trace.json").write_text("{}")
    (tmp_path / "train.py").write_text("")
    (tmp_path / "empty").mkdir()
    found = fix(*arguments, cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith(said), found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_program_is_changed_measured_and_written(tmp_path):
    (tmp_path / "settled.py").write_text(SETTLED)
    (tmp_path / "train.py").write_bytes(COLLECTING.replace("\n", "\r\n").encode())
    wished = ("train.py", "--select", "garbage-collection-in-step", "--write", "--check", "--diff", "found.diff")
    found = fix(*wished, cwd=tmp_path)
    assert found.returncode == 1, found.stderr
    assert found.stdout.startswith("1. garbage-collection-in-step, train.py:16: held: faster, same results\n")
    assert "the same: exit status, 2 trained parameters (to the last bit), 4 losses of" in found.stdout
    assert "the first backward passes, 25 numbers in standard output" in found.stdout
    after = COLLECTING.replace("\t\tgc.collect()  # again\n", "").replace("import gc\n", "")
    assert (tmp_path / "train.py").read_bytes() == after.replace("\n", "\r\n").encode()
    patch = (tmp_path / "found.diff").read_bytes()
    assert patch.startswith(b"--- a/train.py\n+++ b/train.py\n@@ -1,4 +1,3 @@\n-import gc\r\n")
    assert b"\n@@ -13,5 +12,4 @@\n" in patch
    assert b"\n-\t\tgc.collect()  # again\r\n" in patch
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.diff", "settled.py", "train.py"]


@pytest.mark.slow
def test_a_change_of_the_result_is_told_and_the_file_left_alone(tmp_path, forks):
    """In forks: else most of the time would go to importing PyTorch in each of the runs."""
    (tmp_path / "train.py").write_text(COUNTING)
    command = ["fix", "train.py", "--select", "garbage-collection-in-step", "--write", "--check"]
    found = forks.run("tests.diagnosis.fixing.trying:command", command, tmp_path)
    assert found.returncode == 0, found.stderr
    assert "train.py:16: changed the result: standard\n   output has other words: `False " in found.stdout
    assert (tmp_path / "train.py").read_text() == COUNTING


@pytest.mark.slow
def test_a_program_that_fails_has_nothing_to_fix(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, torch\nopen(os.environ['PWD'] + '/left', 'w').close()\ntorch.ones(2).sum()\n"
        "raise ValueError('no data')\n"
    )
    found = fix("train.py", cwd=tmp_path)
    assert not (tmp_path / "left").exists()
    assert found.returncode == 3
    assert found.stderr.endswith("profkit: the program itself ends with status 1: ValueError: no data\n")
    assert found.stdout == ""
