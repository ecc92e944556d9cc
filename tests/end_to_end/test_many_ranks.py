"""Launches of several processes, as users start them, on this host over gloo."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from profkit.diagnosis.pipeline import read_facts
from profkit.patterns.ranks.table import rank_table
from profkit.run.directory import Run, find_trace, load_launch, load_run
from tests.collect.reading import read_events, steps_of
from tests.recordings import Recordings

TRAINS = """\
import os, signal, sys
import torch
import torch.distributed as dist
import torch.multiprocessing
import profkit

def train(dies_at):
    rank = dist.get_rank()
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(16):
        if rank == 1 and step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
    sys.stdout.write(f"rank {rank} of {dist.get_world_size()}\\n")

def spawned(rank, directory, address, is_recorded_first):
    begin = lambda: dist.init_process_group("gloo", address, rank=rank, world_size=2)
    if not is_recorded_first:
        begin()
    with profkit.profile(directory):
        if is_recorded_first:
            begin()
        train(dies_at=-1)
        dist.destroy_process_group()

if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        address = f"file://{os.path.abspath(sys.argv[2])}-meets"
        torch.multiprocessing.spawn(spawned, (sys.argv[2], address, sys.argv[3] == "first"), nprocs=2)
    else:
        dist.init_process_group("gloo")
        if sys.argv[1] == "meet":
            sys.stdout.write(f"rank {dist.get_rank()} has met\\n")
        else:
            train(int(sys.argv[2]) if sys.argv[1] == "die" else -1)
        dist.destroy_process_group()
"""
RECORDED = [2, 4, 5, 6, 7]


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2")
RECORD = ("-m", "profkit", "record", "--output", "run")
FILES = {"train.py": TRAINS}


def runs_of(launch: Path) -> dict[str, Run]:
    return {path.name: load_run(path) for path in sorted(launch.iterdir()) if path.is_dir()}


def test_profkit_launches_ranks_as_torchrun_does_and_few_of_them_record_everything(recordings: Recordings) -> None:
    kept = recordings.launch(
        ["-m", "profkit", "record", "--nproc", "4", "--ranks", "1", "train.py", "--", "go"], writes=FILES
    )
    assert kept.ended.returncode == 0, kept.ended.stderr
    assert sorted(kept.ended.stdout.splitlines()) == [f"rank {rank} of 4" for rank in range(4)]

    launch = kept.directory / "traces" / "train" / "launch"
    found = runs_of(launch)
    assert list(found) == [f"rank{rank}" for rank in range(4)]
    for rank, one in enumerate(found.values()):
        assert one.identity is not None
        assert (one.identity.rank, one.identity.world_size, one.identity.local_rank) == (rank, 4, rank)
        assert one.identity.launch == load_launch(launch).launch
        assert one.identity.clock_offset_ns == 0
        assert one.is_light == (rank > 0)
        assert sorted(steps_of(read_events(launch / f"rank{rank}"))) == RECORDED, "all ranks record the same steps"

    names = [{event["name"] for event in read_events(launch / folder)} for folder in ("rank0", "rank3")]
    assert all({"c10d::allreduce_", "gloo:all_reduce"} <= one for one in names)
    assert ["aten::addmm" in one for one in names] == [True, False]
    tables = [rank_table(read_facts(launch / folder), folder) for folder in ("rank0", "rank3")]
    for table in tables:
        assert table.steps.number.tolist() == RECORDED[1:], "the first, in which lines are marked, is not measured"
        reduced = table.collectives.size_bytes[np.isin(table.collectives.step, table.steps.number)]
        assert reduced.tolist() == [4 * (64 * 64 + 64)] * len(table.steps.number)


def test_a_launch_started_again_gets_a_new_directory(recordings: Recordings) -> None:
    """From one process, with one name."""
    launch = [*TORCHRUN, "--rdzv-backend=c10d", "--rdzv-id=same", "--rdzv-endpoint=localhost:0", *RECORD, "train.py"]
    kept = recordings.launch([*launch, "go"], [*launch, "go"], writes=FILES)
    for directory, ended in zip(("run", "run-2"), (*kept.before, kept.ended), strict=True):
        assert ended.returncode == 0, ended.stderr
        assert sorted(runs_of(kept.directory / directory)) == ["rank0", "rank1"]
        for rank in (0, 1):
            assert sorted(steps_of(read_events(kept.directory / directory / f"rank{rank}"))) == RECORDED
    assert load_launch(kept.directory / "run").launch != load_launch(kept.directory / "run-2").launch


def test_a_killed_rank_leaves_its_recording_so_far_and_the_others_theirs(recordings: Recordings) -> None:
    """In processes that import PyTorch themselves, as users start them."""
    kept = recordings.start([*RECORD, "--nproc", "2", "train.py", "--", "die", "12"], writes=FILES)
    assert kept.ended.returncode == 3
    assert kept.ended.stderr.splitlines()[-1].endswith("failed with exit status 1"), "torchrun's own"
    found = runs_of(kept.directory / "run")
    assert found["rank1"].exit_status == 128 + signal.SIGKILL
    assert found["rank0"].exit_status not in (None, 0)
    for rank in (0, 1):
        assert sorted(steps_of(read_events(kept.directory / "run" / f"rank{rank}"))) == RECORDED


def test_a_rank_killed_before_it_recorded_is_named(recordings: Recordings) -> None:
    kept = recordings.launch([*RECORD, "--nproc", "2", "train.py", "--", "die", "2"], writes=FILES)
    assert kept.ended.returncode == 3
    killed = runs_of(kept.directory / "run")["rank1"]
    assert killed.identity is not None
    assert killed.identity.rank == 1
    assert killed.trace is None


@pytest.mark.parametrize("begins", ["first", "later"])
def test_spawned_processes_are_distinguished_by_their_process_group(recordings: Recordings, begins: str) -> None:
    """Even if the group begins inside the recording and is gone at its end. There the processes are really spawned."""
    run = recordings.start if begins == "first" else recordings.launch
    kept = run(["train.py", "spawn", "run", begins], writes=FILES)
    assert kept.ended.returncode == 0, kept.ended.stderr
    found = runs_of(kept.directory / "run")
    assert list(found) == ["rank0", "rank1"]
    for rank, one in enumerate(found.values()):
        assert one.identity is not None
        assert (one.identity.rank, one.identity.world_size) == (rank, 2)
        assert one.identity.launch == load_launch(kept.directory / "run").launch
        assert find_trace(kept.directory / "run" / f"rank{rank}") is not None


def test_ranks_that_cannot_write_run_unrecorded(recordings: Recordings) -> None:
    command = [*TORCHRUN, "--standalone", "-m", "profkit", "record", "--output", "file/run", "train.py", "meet"]
    kept = recordings.launch(command, writes={**FILES, "file": ""})
    assert kept.ended.returncode == 0, kept.ended.stderr
    assert sorted(kept.ended.stdout.splitlines()) == ["rank 0 has met", "rank 1 has met"]
    assert kept.ended.stderr.count("profkit: not recording this rank") == 2
