"""Launches over gloo in which one rank is late on purpose. That no other rank is called late is tested on handwritten
launches, because a busy machine may delay any rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.replay import replay_launch
from profkit.diagnosis.launch.launching import gather
from profkit.diagnosis.pipeline import read_facts
from profkit.rules.straggler import straggler
from tests.recordings import Recordings

TRAINS = """\
import sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 16 * 16

    def __getitem__(self, index):
        if sys.argv[1] == "loader" and dist.get_rank() == 1 and index % 16 == 0:
            time.sleep(0.2)  # slow loader
        return torch.randn(64), torch.randn(1)

def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for x, y in torch.utils.data.DataLoader(Samples(), batch_size=16):
        if sys.argv[1] == "start" and dist.get_rank() == 1:
            time.sleep(0.2)  # slow start
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.races(why="rank 1 is made late, but the machine may delay rank 0 as long"),
]


def recorded(recordings: Recordings, plant: str) -> tuple[Launch, Path]:
    kept = recordings.launch(
        ["-m", "profkit", "record", "--nproc", "2", "train.py", "--", plant], writes={"train.py": TRAINS}
    )
    assert kept.ended.returncode == 0, kept.ended.stderr
    ranks = sorted((kept.directory / "traces" / "train" / "launch").glob("rank*"))
    launch = gather([str(rank) for rank in ranks]).launch
    assert launch is not None
    return launch, ranks[0]


@pytest.mark.parametrize("plant", ["loader", "start"])
def test_a_launch_replayed_without_an_edit_takes_as_long_as_recorded(recordings: Recordings, plant: str) -> None:
    launch, _ = recorded(recordings, plant)
    replayed = replay_launch(launch)
    assert replayed.steps >= 4
    assert replayed.replayed_ns == pytest.approx(replayed.recorded_ns, rel=0.05)


@pytest.mark.parametrize(("plant", "cause"), [("loader", "input"), ("start", "unknown")])
def test_the_late_rank_its_cause_and_its_line_are_named(recordings: Recordings, plant: str, cause: str) -> None:
    launch, first = recorded(recordings, plant)
    (found,) = straggler.check(read_facts(first, launch=launch))
    assert (found.evidence["rank"], found.evidence["cause"]) == (1, cause)
    line = next(number for number, text in enumerate(TRAINS.splitlines(), 1) if f"# slow {plant}" in text)
    assert found.location is not None
    assert found.location.line == line
    assert found.evidence["longer_ns_per_step"] == pytest.approx(200e6, rel=0.1)
