"""Calling gc.collect() in every training step makes Python look through all objects of the program each time.

People add it in the hope of freeing memory. But a tensor is freed as soon as nothing refers to it, without the
collector. A full collection visits every list, dict and object alive, here the records of a dataset, which no step has
changed. Collections needed for reference cycles happen by themselves.

Source: Python documentation, gc; PyTorch documentation, FAQ, "My model reports 'cuda runtime error(2): out of memory'".
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("garbage-collection-in-step",)


@dataclass(frozen=True)
class State:
    records: list[dict[str, object]]
    images: Tensor
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    records = [{"id": i, "label": i % 10, "box": [i, i + 1, 32, 32], "tags": ["train"]} for i in range(40_000)]
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    return State(records, torch.randn(24, 256, 784, device=device), model, optimizer)


def label_batch(state: State, step: int) -> Tensor:
    labels = [record["label"] for record in state.records[256 * step : 256 * (step + 1)]]
    return torch.tensor(labels, device=state.images.device)


def pitfall(state: State) -> Iterator[Tensor]:
    for step, x in enumerate(state.images):
        y = label_batch(state, step)
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        gc.collect()  # expect: garbage-collection-in-step
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for step, x in enumerate(state.images):
        y = label_batch(state, step)
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
