"""A Jacobian is computed row by row, each by a backward pass of its own.

A network's derivatives are part of the loss. Each row of the Jacobian goes through the same graph, on one sample's few
numbers. One pass with a dimension for the rows computes all of them.

Source: github.com/pytorch/pytorch, issue 50584, which asks for Jacobians without a pass for each row.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("gradients-one-by-one",)
SIZE, STEPS = 24, 10


@dataclass(frozen=True)
class State:
    points: Tensor
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(SIZE, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, SIZE)).to(device)
    points = torch.randn(8, SIZE, device=device)
    return State(points, model, torch.optim.SGD(model.parameters(), lr=1e-3, fused=True))


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        points = state.points.clone().requires_grad_()
        sums = state.model(points).sum(0)
        rows = []
        for row in sums:
            rows.append(torch.autograd.grad(row, points, create_graph=True)[0])  # expect: gradients-one-by-one
        yield _update(state, torch.stack(rows))


def fix(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        points = state.points.clone().requires_grad_()
        sums = state.model(points).sum(0)
        every = torch.eye(SIZE, device=points.device)
        (jacobian,) = torch.autograd.grad(sums, points, every, create_graph=True, is_grads_batched=True)
        yield _update(state, jacobian)


def _update(state: State, jacobian: Tensor) -> Tensor:
    loss = jacobian.square().sum()
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
