"""Summing up the loss tensors themselves links the graphs of all steps into one.

``total += loss`` for the mean of the epoch looks like arithmetic on numbers. But the sum of two tensors with a history
has a history too. After n batches ``total`` is the end of a chain through n graphs, none of which can be freed before
the epoch ends. A backward pass releases the activations, but not the nodes of the graph.

Source: PyTorch documentation, FAQ, "My model reports 'cuda runtime error(2): out of memory'", the example total_loss.
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
    total = torch.zeros((), device=state.batches[0][0].device)
    for seen, (x, y) in enumerate(state.batches, 1):
        state.optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        total += loss  # expect: retained-graph
        yield total.detach() / seen


def fix(state: State) -> Iterator[Tensor]:
    total = torch.zeros((), device=state.batches[0][0].device)
    for seen, (x, y) in enumerate(state.batches, 1):
        state.optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        total += loss.detach()
        yield total.detach() / seen
