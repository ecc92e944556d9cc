"""A seed for PyTorch alone: the noise comes from NumPy, and no two runs are alike.

`torch.manual_seed` seeds PyTorch's random numbers. NumPy and Python's `random` have their own, which start anywhere
unless they are seeded, too. So two runs of the same program differ, and a change that made a result better or worse
cannot be told from chance. `profkit verify --twice` runs a program twice and names the first tensor that differs.

This is about what a program computes, not how fast, so no rule reports it as more than information. The variants yield
different numbers: those of `pitfall` differ from run to run.

Source: PyTorch documentation, "Reproducibility": controlling sources of randomness.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

triggers = ()
effect = "another result"


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]
    device: str


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    batches = [(torch.randn(512, 256, device=device), torch.randn(512, 128, device=device)) for _ in range(40)]
    return State(model, optimizer, batches, device)


def train(state: State, x: Tensor, y: Tensor, noise: np.ndarray) -> Tensor:
    state.optimizer.zero_grad()
    noisy = x + torch.from_numpy(noise).to(state.device)
    loss = nn.functional.mse_loss(state.model(noisy), y)
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    for x, y in state.batches:
        yield train(state, x, y, np.random.standard_normal(256).astype(np.float32))


def fix(state: State) -> Iterator[Tensor]:
    numbers = np.random.default_rng(0)
    for x, y in state.batches:
        yield train(state, x, y, numbers.standard_normal(256).astype(np.float32))
