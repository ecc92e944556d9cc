"""Kernel matrices are centred by products with a centring matrix.

The measure of dependence between two sets of points is the trace of `K H L H`, where `H` is the identity less a
constant. Written so, it takes three products of full matrices. Subtracting the means of rows and columns is the same.

Source: github.com/py-why/causal-learn, pull request 49, which takes the trace of products by sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("needlessly-full-matrix",)
POINTS, STEPS = 500, 12


@dataclass(frozen=True)
class State:
    inputs: Tensor
    wanted: Tensor
    centre: Tensor
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    inputs = torch.randn(POINTS, 8, device=device)
    wanted = inputs.sin().sum(1, keepdim=True)
    centre = torch.eye(POINTS, device=device) - 1 / POINTS
    model = nn.Linear(8, 1).to(device)
    return State(inputs, wanted, centre, model, torch.optim.SGD(model.parameters(), lr=1e-3, fused=True))


def _kernel(points: Tensor) -> Tensor:
    return torch.exp(-torch.cdist(points, points))


def pitfall(state: State) -> Iterator[Tensor]:
    left, centre = _kernel(state.inputs), state.centre
    for _ in range(STEPS):
        state.optimizer.zero_grad()
        right = _kernel(state.wanted - state.model(state.inputs))
        loss = torch.trace(left @ centre @ right @ centre) / POINTS**2  # expect: needlessly-full-matrix
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    left = _kernel(state.inputs)
    for _ in range(STEPS):
        state.optimizer.zero_grad()
        right = _kernel(state.wanted - state.model(state.inputs))
        centred = right - right.mean(0, keepdim=True) - right.mean(1, keepdim=True) + right.mean()
        loss = (left * centred).sum() / POINTS**2
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
