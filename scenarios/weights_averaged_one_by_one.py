"""A moving average of the weights is kept with three operations for each parameter, in a Python loop.

Teachers in self-supervised learning, evaluation copies and target networks all follow the trained weights. Written as a
loop over both models' parameters, the update takes hundreds of tiny operations a step. Lists of tensors need one.

Source: PyTorch, pull request 103550 (the loop in `torch.optim.swa_utils` became `torch._foreach_lerp_`); PyTorch
documentation, "torch.optim.swa_utils".
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("looped-parameters",)


@dataclass(frozen=True)
class State:
    model: nn.Module
    average: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.ReLU()) for _ in range(60)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = [torch.randn(16, 24, device=device) for _ in range(24)]
    return State(model, copy.deepcopy(model).requires_grad_(False), optimizer, batches)


def train(state: State, batch: Tensor) -> Tensor:
    loss = state.model(batch).square().mean()
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()


@torch.no_grad()
def follow_one_by_one(average: nn.Module, model: nn.Module) -> None:
    for mean, value in zip(average.parameters(), model.parameters(), strict=True):
        mean.mul_(0.99).add_(0.01 * value)  # expect: looped-parameters


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module) -> None:
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)


def pitfall(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        loss = train(state, batch)
        follow_one_by_one(state.average, state.model)
        yield loss


def fix(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        loss = train(state, batch)
        follow(state.average, state.model)
        yield loss
