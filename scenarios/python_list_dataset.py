"""A dataset that is a list of Python objects is copied into each worker of its DataLoader, page by page.

A fork shares all memory until somebody writes to it, and reading a Python object writes to its reference count, which
lies beside it. Each worker ends up with its own copy of every record that it has read. Memory grows until the epoch is
over, or until the machine has no more. Arrays hold the same records without a count for each.

Source: pytorch/pytorch issue 13246, "DataLoader num_workers > 0 causes CPU memory from parent process to be replicated
in all worker processes".
"""

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

triggers = ("worker-memory-growth",)
effect = "memory"

# A scenario is loaded by its path, so a worker in a new process could not import the dataset's class. Besides, only a
# fork shares memory.
START = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
COUNT, BATCH, STEPS = 150_000, 256, 36


def boxes(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 4))


class RecordList(Dataset[tuple[Tensor, int]]):
    """Annotations as they come out of a JSON file: a list of dicts."""

    def __init__(self, count: int) -> None:
        self.records = [  # expect: worker-memory-growth
            {"id": i, "file": f"images/{i:08d}.jpg", "box": box} for i, box in enumerate(boxes(count).tolist())
        ]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        record = self.records[index]
        return torch.tensor(record["box"]), int(record["file"][7:15]) % 4


class RecordArrays(Dataset[tuple[Tensor, int]]):
    """The same annotations in two arrays."""

    def __init__(self, count: int) -> None:
        self.boxes = boxes(count)
        self.files = np.array([f"images/{i:08d}.jpg" for i in range(count)], dtype=np.bytes_)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor(self.boxes[index].tolist()), int(self.files[index][7:15]) % 4


@dataclass(frozen=True)
class State:
    device: str
    records: RecordList
    arrays: RecordArrays
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
    model = model.to(device)
    return State(
        device, RecordList(COUNT), RecordArrays(COUNT), model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    )


def batches(dataset: Dataset[tuple[Tensor, int]]) -> DataLoader[tuple[Tensor, int]]:
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))[: STEPS * BATCH].tolist()
    return DataLoader(dataset, BATCH, sampler=order, num_workers=2, multiprocessing_context=START)


def train_step(state: State, x: Tensor, y: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = nn.functional.cross_entropy(state.model(x.to(state.device)), y.to(state.device))
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    for x, y in batches(state.records):
        yield train_step(state, x, y)


def fix(state: State) -> Iterator[Tensor]:
    for x, y in batches(state.arrays):
        yield train_step(state, x, y)
