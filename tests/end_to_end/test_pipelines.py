"""Pipelines over gloo: two equal stages, and two of which one has more work."""

from __future__ import annotations

import pytest

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import find_staging
from profkit.derive.launch.replay import replay_launch
from profkit.derive.launch.work_by_rank import measure_work_by_rank
from profkit.diagnosis.launch.launching import gather
from tests.recordings import Recordings

TRAINS = """\
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    count = 12 if rank == 1 and sys.argv[1] == "uneven" else 4
    layers = nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(512, 512), nn.ReLU())))
    stage = PipelineStage(layers, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.001)
    x, y = torch.randn(256, 512), torch.randn(256, 512)
    for _ in range(16):
        optimizer.zero_grad()
        schedule.step(x) if rank == 0 else schedule.step(target=y)
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.races(why="the replay adds nothing, but the machine may delay a stage between two events"),
]


def recorded(recordings: Recordings, stages: str) -> Launch:
    kept = recordings.launch(
        ["-m", "profkit", "record", "--nproc", "2", "train.py", "--", stages], writes={"train.py": TRAINS}
    )
    assert kept.ended.returncode == 0, kept.ended.stderr
    ranks = sorted((kept.directory / "traces" / "train" / "launch").glob("rank*"))
    return gather([str(rank) for rank in ranks]).launch


@pytest.mark.parametrize("stages", ["even", "uneven"])
def test_a_pipeline_is_recognised_and_its_replay_without_an_edit_takes_as_long(
    recordings: Recordings, stages: str
) -> None:
    launch = recorded(recordings, stages)
    (one,) = find_staging(launch).pipelines
    assert (one.stages, one.micro_batches, one.returns) == ((0, 1), 4, True)
    assert set(launch.joint.members.tolist()) == {2}
    replayed = replay_launch(launch)
    assert replayed.replayed_ns == pytest.approx(replayed.recorded_ns, rel=0.1)  # others work here too
    worked_ns = measure_work_by_rank(launch).total_ns.mean(axis=1)
    assert stages == "even" or worked_ns[1] > worked_ns[0]
