"""A small model that is trained, with or without a recording, and operators without end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from profkit.collect.recorder.profiler import profile

Step = Callable[[], Tensor]


def make_training() -> Step:
    """A function that trains a small model for one step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.rand(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step


def train(steps: int, recording: profile | None = None) -> list[float]:
    """Train and return the losses; with a recording each step ends explicitly."""
    train_step, losses = make_training(), []
    for _ in range(steps):
        losses.append(train_step().item())
        if recording is not None:
            recording.step()
    return losses


def compute_until(condition: Callable[[], bool]) -> None:
    """Run operators from one line until the condition holds, up to a bound that no working condition reaches."""
    total = torch.zeros(8)
    for _ in range(5_000_000):
        if condition():
            return
        total = total + 1
