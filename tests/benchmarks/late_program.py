"""A training in which one rank is late for a reason of choice; every rank logs by the clock what happened to it.

    torchrun --nproc-per-node 4 tests/benchmarks/late_program.py LOG KIND LATE_RANK MILLISECONDS

Each rank writes LOG/rank<N>.json: for every step the moments (`time.perf_counter_ns`, one clock for all processes of a
host) at which the step began, its batch had come, its own work before the first collective was done, and it ended.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KINDS = ("loader", "loader-worker", "compute", "sleep", "garbage", "fsdp-compute", "fsdp-sleep")
BATCH, STEPS, WIDTH = 8, 30, 256


class Rows(Dataset[tuple[Tensor, int]]):
    """Samples of which one in each batch takes ``wait_s`` longer to load."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.wait_s and index % BATCH == 3:
            time.sleep(self.wait_s)
        return torch.full((WIDTH,), float(index % 7)), index % 10


def burn(until_ns: int, matrix: Tensor) -> None:
    """Multiply until the moment has come."""
    while time.perf_counter_ns() < until_ns:
        matrix @ matrix


class Ring:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.me = self


def hold_up(kind: str, wait_s: float, matrix: Tensor) -> None:
    """Do what the late rank does before its forward pass."""
    if kind.endswith("compute"):
        burn(time.perf_counter_ns() + int(wait_s * 1e9), matrix)
    elif kind.endswith("sleep"):
        time.sleep(wait_s)
    elif kind == "garbage":
        rings = [Ring() for _ in range(int(wait_s * 1e6))]
        del rings
        gc.collect()


def batches(loader: DataLoader[tuple[Tensor, int]]) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Each batch, with the moment when it was asked for and when it came."""
    source = iter(loader)
    while True:
        asked = time.perf_counter_ns()
        try:
            x, y = next(source)
        except StopIteration:
            return
        yield asked, time.perf_counter_ns(), x, y


def main(log: Path, kind: str, late_rank: int, wait_s: float) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    is_late = dist.get_rank() == late_rank
    layers = nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    model: nn.Module = nn.Sequential(*layers)
    if kind.startswith("fsdp"):
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = Rows(wait_s if is_late and kind.startswith("loader") else 0.0)
    loader = DataLoader(rows, batch_size=BATCH, num_workers=int(kind == "loader-worker"))
    matrix = torch.randn(128, 128)
    moments: list[tuple[int, int, int, int]] = []
    for asked, came, x, y in batches(loader):
        if is_late:
            hold_up(kind, wait_s, matrix)
        ready = time.perf_counter_ns()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        moments.append((asked, came, ready, time.perf_counter_ns()))
    (log / f"rank{dist.get_rank()}.json").write_text(json.dumps(moments))
    # A thread of gloo may still need the interpreter's lock to drop the last collective, while the end of the process
    # group waits for that thread and holds the lock: torch 2.13 hung in one of six launches, without profkit as well.
    time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) / 1e3)
