"""A covariance is inverted to weigh one vector by it.

Formulas of Gaussian processes, Kalman filters and distances between distributions are written with an inverse. Taken
at their word they cost three times the arithmetic of a solution, and the backward pass multiplies whole matrices where
a solution needs one more vector. `torch.linalg.solve(k, y)` is `torch.inverse(k) @ y`, up to rounding, and rounds less.

Source: PyTorch's documentation of `torch.linalg.inv` ("Consider using torch.linalg.solve() if possible for multiplying
a matrix on the left by the inverse"); Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("explicit-inverse",)


@dataclass(frozen=True)
class State:
    lengths: nn.Parameter
    noise: Tensor
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    lengths = nn.Parameter(torch.zeros(6, device=device))
    points = [torch.rand(400, 6, device=device) for _ in range(16)]
    batches = [(each, torch.sin(4 * each.sum(dim=1))) for each in points]
    noise = 0.1 * torch.eye(400, device=device)
    return State(lengths, noise, torch.optim.SGD([lengths], lr=1e-3), batches)


def covariance(points: Tensor, lengths: Tensor, noise: Tensor) -> Tensor:
    scaled = points / lengths.exp()
    squares = scaled.square().sum(dim=1)
    distances = squares[:, None] + squares - 2 * scaled @ scaled.T
    return torch.exp(-distances) + noise


def pitfall(state: State) -> Iterator[Tensor]:
    for points, values in state.batches:
        state.optimizer.zero_grad()
        matrix = covariance(points, state.lengths, state.noise)
        loss = values @ torch.inverse(matrix) @ values  # expect: explicit-inverse
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for points, values in state.batches:
        state.optimizer.zero_grad()
        matrix = covariance(points, state.lengths, state.noise)
        loss = values @ torch.linalg.solve(matrix, values)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
