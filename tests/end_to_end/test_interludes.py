"""An evaluation between the epochs of a program that nobody has changed for profkit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from profkit.run.directory import Run, load_run
from profkit.run.plan import ROUND

PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
body = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
items = nn.Embedding(4000, 64)
optimizer = torch.optim.SGD([*body.parameters(), *items.parameters()], lr=0.1)


def encode(rows):
    return {encoded}


def scores(rows):
    return encode(rows) @ items.weight.T


@torch.no_grad()
def validate(rounds):
    hits = 0
    for _ in range(rounds):
        rows = torch.randn(16, 40, 64)
        {evaluated}
        hits += int((last.argmax(1) == 0).sum())
    return hits


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = body(torch.randn(64, 64)).square().mean() + items(torch.arange(8)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


for epoch in range(2):
    print(epoch, round(train(100), 4))
    print(validate({rounds}))
"""
FUNCTION, MODEL = "torch.relu(rows @ body[0].weight.T)", "body(rows)"
FAULT = "last = scores(rows)[:, -1]"
CLEAN = "last = scores(rows[:, -1])"


def recorded(folder: Path, encoded: str, evaluated: str, rounds: int) -> tuple[dict[str, Any], Run]:
    """The diagnosis of the program, and what was recorded between its steps."""
    text = PROGRAM.format(encoded=encoded, evaluated=evaluated, rounds=rounds)
    (folder / "train.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "profkit", "diagnose", "train.py", "--output", "run", "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    plain = subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(plain.stdout), done.stderr
    diagnosis: dict[str, Any] = json.loads((folder / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    return diagnosis, load_run(folder / "run" / "interlude")


def test_what_an_evaluation_throws_away_is_found_and_the_program_prints_the_same(tmp_path):
    diagnosis, interlude = recorded(tmp_path, FUNCTION, FAULT, 300)
    assert interlude.interlude is not None
    assert (interlude.interlude.site.source, interlude.step_signal) == ("print(validate(300))", ROUND)
    (found,) = (one for one in diagnosis["findings"] if one["rule"] == "mostly-discarded-result")
    assert found["location"]["source"] == "return encode(rows) @ items.weight.T"
    assert found["saving"]["run_ns"] > 0


def test_of_an_evaluation_that_computes_what_it_needs_nothing_is_told(tmp_path):
    diagnosis, interlude = recorded(tmp_path, MODEL, CLEAN, 2000)
    assert (interlude.interlude is not None, interlude.step_signal) == (True, "forward")
    assert [one["rule"] for one in diagnosis["findings"] if one["rule"] == "mostly-discarded-result"] == []
