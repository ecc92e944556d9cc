"""An ``if`` on a tensor makes the host wait in every step, because Python has to know which way to go.

``if loss > limit:`` compares on the device and asks for the answer as a Python bool, which exists only once everything
queued before it has run. If both branches can be computed, ``torch.where`` chooses on the device. Otherwise decide
later, for several steps at once.

On a CPU there is no queue to drain, so the line costs next to nothing.

Source: PyTorch tutorials, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("host-sync-in-step",)
effect = "time on a GPU"

LIMIT = 2.0


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
    for images, labels in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(images), labels)
        if loss > LIMIT:  # expect: host-sync-in-step
            loss = loss * (LIMIT / loss.detach())
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for images, labels in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(images), labels)
        loss = torch.where(loss > LIMIT, loss * (LIMIT / loss.detach()), loss)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
