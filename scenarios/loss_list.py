"""Keeping each step's loss tensor in a list keeps every step's autograd graph alive.

People collect the losses to plot a curve later, and a loss looks like a number. But it is a tensor that still points at
the graph that computed it, so no step's graph can be freed while the list lives. Memory grows a little in each step,
until the run dies hours later, far from this line.

Source: PyTorch documentation, FAQ, "My model reports 'cuda runtime error(2): out of memory'", the part on not
accumulating history across the training loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("retained-graph",)
effect = "memory"


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(150) for layer in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(nn.Linear(64, 32), *layers, nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = [(torch.randn(64, 64, device=device), torch.randn(64, 1, device=device)) for _ in range(24)]
    return State(model, optimizer, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    losses = []
    for x, y in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        losses.append(loss)  # expect: retained-graph
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    losses = []
    for x, y in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        losses.append(loss.detach())
        yield loss.detach()
