"""An optimizer that updates one parameter after another runs a dozen small operations for each of them.

``foreach=False`` is often set to save memory, or copied from an old script; on a CPU it is PyTorch's default. A network
of many small layers then spends more time starting operations inside ``optimizer.step()`` than computing.
``fused=True`` does the same update for all parameters in one call.

Source: PyTorch documentation, torch.optim, the part on the for-loop, foreach and fused implementations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("single-tensor-optimizer",)


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(60) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 1)).to(device)
    batches = [(torch.randn(32, 64, device=device), torch.randn(32, 1, device=device)) for _ in range(24)]
    return State(model, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.Adam(state.model.parameters(), lr=1e-4, foreach=False)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        optimizer.step()  # expect: single-tensor-optimizer
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.Adam(state.model.parameters(), lr=1e-4, fused=True)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.detach()
