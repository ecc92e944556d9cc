"""A second name for a tensor is not a copy: writing in place changes what both names show.

To measure how far a training step has moved the weights, somebody keeps the old weights. But ``before = weights``
copies nothing. Both names refer to one tensor, the optimizer writes into it, and the distance is always 0. The same
holds for any ``b = a``, for views such as ``a[0]``, ``a.view(…)``, ``a.T`` and ``a.detach()``, and on a CPU for
``torch.from_numpy`` and ``.numpy()``. ``.clone()`` copies.

This is about what a program computes, not how fast, so no rule reports it. The variants yield different numbers: the
distance is 0 in `pitfall`, but not in `fix`.

Source: PyTorch documentation, "Tensor Views"; NumPy documentation, "Copies and views".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ()
effect = "another result"


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Linear(256, 128).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    batches = [(torch.randn(512, 256, device=device), torch.randn(512, 128, device=device)) for _ in range(40)]
    return State(model, optimizer, batches)


def train(state: State, x: Tensor, y: Tensor) -> None:
    state.optimizer.zero_grad()
    nn.functional.mse_loss(state.model(x), y).backward()
    state.optimizer.step()


def pitfall(state: State) -> Iterator[Tensor]:
    weights = state.model.weight.detach()
    for x, y in state.batches:
        before = weights
        train(state, x, y)
        yield (weights - before).norm()


def fix(state: State) -> Iterator[Tensor]:
    weights = state.model.weight.detach()
    for x, y in state.batches:
        before = weights.clone()
        train(state, x, y)
        yield (weights - before).norm()
