"""Printing a tensor in every step makes the host wait for the device, and formats numbers faster than anyone reads.

``print(loss)`` shows a value, and the value must be fetched: the host stops until everything queued before has run. Log
once in a while instead, and keep detached tensors on the device until then.

On a CPU there is no queue to drain; only the formatting remains, some hundred microseconds in Python.

Source: PyTorch tutorials, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization".
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("host-sync-in-step",)
effect = "time on a GPU"

EVERY = 12


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]
    log: io.StringIO


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 14 * 14, 10)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = [
        (torch.randn(128, 1, 28, 28, device=device), torch.randint(10, (128,), device=device)) for _ in range(24)
    ]
    return State(model, optimizer, batches, io.StringIO())


def pitfall(state: State) -> Iterator[Tensor]:
    for images, labels in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(images), labels)
        loss.backward()
        state.optimizer.step()
        print(loss.detach(), file=state.log)  # expect: host-sync-in-step
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for number, (images, labels) in enumerate(state.batches):
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(images), labels)
        loss.backward()
        state.optimizer.step()
        if number % EVERY == 0:
            print(loss.detach(), file=state.log)
        yield loss.detach()
