"""`retain_graph=True` keeps a graph for a second backward pass, here one that never comes.

The flag is added when PyTorch complains about a second pass through a graph, and stays after that pass is gone. Without
it, the backward pass frees what the forward pass saved as it goes. With it, everything is held until the name ``loss``
is rebound, after the forward pass of the next step, so the activations of two steps are in memory at once.

Source: PyTorch documentation, torch.Tensor.backward: "in nearly all cases setting this option to True is not needed and
often can be worked around in a much more efficient way".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("needless-retain-graph",)
effect = "memory"


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = [(torch.randn(8192, 64, device=device), torch.randn(8192, 1, device=device)) for _ in range(3)] * 4
    return State(model, optimizer, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for x, y in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward(retain_graph=True)  # expect: needless-retain-graph
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for x, y in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
