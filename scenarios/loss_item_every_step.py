"""Reading the loss as a Python number in every step makes the host wait for the device each time.

A running average for the progress bar needs the loss, and ``.item()`` turns a tensor into a number. The number exists
only once everything queued before it has run. So the host stops, the queue runs dry, and the device idles while the
host catches up. Adding up the detached tensor and reading the sum once in a while gives the same average.

On a CPU there is no queue to drain, so the line costs next to nothing.

Source: PyTorch tutorials, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("host-sync-in-step",)
effect = "time on a GPU"


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 14 * 14, 10)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = [
        (torch.randn(128, 1, 28, 28, device=device), torch.randint(10, (128,), device=device)) for _ in range(24)
    ]
    return State(model, optimizer, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    total = 0.0
    for images, labels in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(images), labels)
        loss.backward()
        state.optimizer.step()
        total += loss.item()  # expect: host-sync-in-step
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    total = 0.0
    for images, labels in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(images), labels)
        loss.backward()
        state.optimizer.step()
        total += loss.detach()
        yield loss.detach()
