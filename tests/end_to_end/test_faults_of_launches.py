"""Launches of two processes over gloo, diagnosed as by a user: faults of all ranks, a fault of one rank, and the same
program without faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.recordings import Recordings

TRAINS = """\
import sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PLANT = sys.argv[1]

class Deep(nn.Module):
    def __init__(self, width=128, depth=20):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = x + torch.relu(layer(norm(x)))
        return x

def solve(matrix, seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        matrix = torch.linalg.matrix_exp(matrix / matrix.norm())  # slow compute
    return matrix

def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    options = {"find_unused_parameters": True, "bucket_cap_mb": 0.06} if PLANT == "options" else {}
    model = DistributedDataParallel(Deep(), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(12):
        x = torch.randn(32, 128)
        if PLANT == "compute" and dist.get_rank() == 1:
            solve(torch.randn(512, 512), 0.2)
        loss = (model(x) - x).square().mean()  # forward
        optimizer.zero_grad()
        loss.backward()  # backward
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
OF_ALL_RANKS = {"unused-parameter-search", "small-collectives"}
pytestmark = pytest.mark.slow


def diagnosed(recordings: Recordings, plant: str) -> dict[str, Any]:
    kept = recordings.launch(
        ["-m", "profkit", "diagnose", "--nproc", "2", "train.py", "--", plant], writes={"train.py": TRAINS}
    )
    assert kept.ended.returncode == 0, kept.ended.stderr
    found: dict[str, Any] = json.loads((kept.directory / "traces" / "train" / "launch" / "diagnosis.json").read_text())
    return found


def lines_by_rule(diagnosis: dict[str, Any]) -> dict[str, int]:
    """The lines of the first finding of each rule."""
    return {
        finding["rule"]: finding["location"]["line"]
        for finding in reversed(diagnosis["findings"])
        if finding["location"]
    }


def line_of(comment: str) -> int:
    return next(number for number, text in enumerate(TRAINS.splitlines(), 1) if f"# {comment}" in text)


def test_options_that_cost_messages_are_reported_at_the_passes_that_send_them(recordings: Recordings) -> None:
    found = lines_by_rule(diagnosed(recordings, "options"))
    assert found["unused-parameter-search"] == line_of("forward")
    assert found["small-collectives"] == line_of("backward")
    assert "tensor-element-loop" not in found, "the loop is DistributedDataParallel's own"


@pytest.mark.races(why="the machine may delay the other rank as long as the planted work takes")
def test_work_of_only_one_rank_is_reported_at_its_line(recordings: Recordings) -> None:
    diagnosis = diagnosed(recordings, "compute")
    (found,) = (finding for finding in diagnosis["findings"] if finding["rule"] == "straggler")
    assert (found["evidence"]["rank"], found["evidence"]["cause"]) == (1, "compute")
    assert found["location"]["line"] == line_of("slow compute")
    assert found["evidence"]["longer_ns_per_step"] > 100e6, "half of what is planted: the other rank may be slow too"
    assert diagnosis["launch"]["shown_rank"] == 1
    assert not OF_ALL_RANKS & {finding["rule"] for finding in diagnosis["findings"]}


@pytest.mark.races(why="a rank that the machine delays is a straggler")
def test_the_same_program_without_a_fault_has_no_finding_about_its_collectives(recordings: Recordings) -> None:
    """The machine may make a rank late by chance, so only rules that do not depend on time are asked."""
    rules = {finding["rule"] for finding in diagnosed(recordings, "none")["findings"] if finding["kind"] == "fault"}
    assert not rules & {*OF_ALL_RANKS, "redundant-allreduce", "late-overlap", "tensor-element-loop", "debug-mode-on"}
