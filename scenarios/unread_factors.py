"""All 1,024 left singular vectors are computed, where the 32 right ones are wanted.

`torch.linalg.svd` completes its factors to square ones unless it is told not to. To project features on their main
directions the right vectors do, or the first few left ones. The completion takes most of the decomposition's time.

Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unread-factors",)


@dataclass(frozen=True)
class State:
    model: nn.Sequential
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32)).to(device)
    batches = [torch.randn(1024, 64, device=device) for _ in range(16)]
    return State(model, torch.optim.SGD(model.parameters(), lr=0.01), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        features = state.model(batch)
        directions = torch.linalg.svd(features.detach()).Vh  # expect: unread-factors
        yield learn(state, features, directions)


def fix(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        features = state.model(batch)
        directions = torch.linalg.svd(features.detach(), full_matrices=False).Vh
        yield learn(state, features, directions)


def learn(state: State, features: Tensor, directions: Tensor) -> Tensor:
    main = directions[:4]
    loss = (features - features @ main.T @ main).square().mean()
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
