"""A convolution in front of a batch norm needs no bias: the norm subtracts the mean, and the bias with it.

Layers have a bias by default, so it is there unless somebody turned it off. The result is the same without it, and its
gradient is zero except for rounding. Still, each layer adds it, sums its gradient over the whole output, and updates
it. In a network of small layers, such as one for point clouds, that is a noticeable part of the step.

Source: PyTorch tutorials, Performance Tuning Guide, "Disable bias for convolutions directly followed by a batch norm".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("bias-before-batchnorm",)


@dataclass(frozen=True)
class State:
    weights: dict[str, Tensor]
    clouds: list[tuple[Tensor, Tensor]]


class PointNetwork(nn.Module):
    """The same small network for each point of a cloud, then the maximum of each feature over all points."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(32 if depth else 3, 32, 1, bias=bias)  # expect: bias-before-batchnorm
            for depth in range(16)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(32) for _ in range(16))
        self.head = nn.Linear(32, 4)

    def forward(self, points: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            points = norm(convolution(points)).relu()
        return self.head(points.amax(2))


def setup(device: str) -> State:
    torch.manual_seed(0)
    clouds = [(torch.randn(8, 3, 64, device=device), torch.randint(4, (8,), device=device)) for _ in range(24)]
    return State(PointNetwork(bias=True).to(device).state_dict(), clouds)


def pitfall(state: State) -> Iterator[Tensor]:
    network = PointNetwork(bias=True).to(state.clouds[0][0].device)
    network.load_state_dict(state.weights)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    for points, kind in state.clouds:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(points), kind)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    network = PointNetwork(bias=False).to(state.clouds[0][0].device)
    network.load_state_dict(state.weights, strict=False)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    for points, kind in state.clouds:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(points), kind)
        loss.backward()
        optimizer.step()
        yield loss.detach()
