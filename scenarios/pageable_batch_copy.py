"""Batches go to the GPU from ordinary memory, and the host waits for each of them.

The GPU can read the host's memory by itself only if the system may not move it, which means pinned memory. From other
memory the driver copies the batch piece by piece through its own small pinned buffer, several times slower than the
bus, and the call returns only when that is done. From pinned memory ``non_blocking=True`` lets the host go on.

Its recording is of an H200.

Source: PyTorch tutorials, "A guide on good usage of non_blocking and pin_memory() in PyTorch".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("pageable-transfer",)
effect = "time on a GPU"
needs_gpu = True

STEPS = 24
SIDE = 64


@dataclass(frozen=True)
class State:
    device: str
    batches: list[Tensor]
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    count = 8 if device == "cpu" else 2048  # 100 MB on a GPU
    batches = [torch.randn(count, 3, SIDE, SIDE) for _ in range(3)]
    layers = nn.Conv2d(3, 32, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    model = nn.Sequential(*layers).to(device)
    return State(device, batches, model, torch.optim.SGD(model.parameters(), lr=0.01))


def train(state: State, images: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = state.model(images).square().mean()
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    for number in range(STEPS):
        images = state.batches[number % 3].to(state.device)  # expect: pageable-transfer
        yield train(state, images)


def fix(state: State) -> Iterator[Tensor]:
    pinned = [batch.pin_memory() for batch in state.batches] if state.device != "cpu" else state.batches
    for number in range(STEPS):
        images = pinned[number % 3].to(state.device, non_blocking=True)
        yield train(state, images)
