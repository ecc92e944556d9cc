"""A program in two processes that average their gradients, each recorded by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.forks import LONGEST_S

TRAINING = """
import sys
from datetime import timedelta
import torch
from torch import distributed, nn

rank, meeting = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=300))
torch.manual_seed(rank)
network = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
model = nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(12):
    optimizer.zero_grad()
    for _ in range(4):
        loss = model(torch.randn(16, 512)).square().mean() / 4
        loss.backward()
    optimizer.step()
print(rank, "ends with", sum(p.double().sum() for p in network.parameters()).item())
distributed.destroy_process_group()
"""
LINE = next(number for number, text in enumerate(TRAINING.splitlines(), 1) if "loss.backward()" in text)
pytestmark = pytest.mark.slow


def run(program: Path, *before: str) -> tuple[list[str], list[str]]:
    """The output of both ranks. No process outlives the test."""
    meeting = (program.parent / f"meeting-{len(before)}").as_uri()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        ranks = []
        for rank in (0, 1):
            output = ["--output", str(program.parent / f"rank{rank}")] if before else []
            rest = ["--", str(rank), meeting] if before else [str(rank), meeting]
            command = [sys.executable, *before, *output, str(program), *rest]
            process = subprocess.Popen(
                command, cwd=program.parent, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            ranks.append(process)
            stack.callback(process.wait)
            stack.callback(process.kill)
        outcomes = [process.communicate(timeout=LONGEST_S) for process in ranks]
        assert [process.returncode for process in ranks] == [0, 0], outcomes
    return [out for out, _ in outcomes], [err for _, err in outcomes]


@pytest.mark.races(why="gloo's threads may abort a process at its exit (terminate called without an active exception)")
def test_both_ranks_are_recorded_and_get_the_same_diagnosis(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    alone, _ = run(program)
    recorded, _ = run(program, "-m", "profkit", "diagnose")
    for rank in (0, 1):
        assert recorded[rank].startswith(alone[rank])
        diagnosis = json.loads((tmp_path / f"rank{rank}" / "diagnosis.json").read_text())
        found = next(one for one in diagnosis["findings"] if one["rule"] == "redundant-allreduce")
        assert found["location"]["line"] == LINE
        assert found["evidence"]["backward_passes_per_optimizer_step"] == 4
        assert found["saving"]["fraction"] > 0
