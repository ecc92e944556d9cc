"""Features are centred by a product with a centring matrix.

The identity less a constant takes the mean of all points off each feature. As a product it is a matrix of points by
points, and so is its backward pass. Subtracting the mean is the same.

Source: github.com/py-why/causal-learn, pull request 49, in which products with such matrices become sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("needlessly-full-matrix",)
POINTS, WIDTH, STEPS = 900, 96, 12


@dataclass(frozen=True)
class State:
    inputs: Tensor
    centre: Tensor
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    inputs = torch.randn(POINTS, 32, device=device)
    centre = torch.eye(POINTS, device=device) - 1 / POINTS
    model = nn.Linear(32, WIDTH).to(device)
    return State(inputs, centre, model, torch.optim.SGD(model.parameters(), lr=1e-3, fused=True))


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        state.optimizer.zero_grad()
        centred = state.centre @ state.model(state.inputs)  # expect: needlessly-full-matrix
        loss = centred.square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        state.optimizer.zero_grad()
        features = state.model(state.inputs)
        loss = (features - features.mean(0)).square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
