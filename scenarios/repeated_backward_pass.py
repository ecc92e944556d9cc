"""The derivatives of a field by place and by time are taken by two passes, where one gives both.

A physics-informed network asks `torch.autograd.grad` for each derivative by itself. Both calls begin at the same field
and go through all of its layers, and with `create_graph=True` each records what it computes.

Source: https://github.com/NeuroDiffGym/neurodiffeq/issues/77
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("repeated-backward-pass",)


@dataclass(frozen=True)
class State:
    model: nn.Sequential
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(128, 1)).to(device)
    batches = [tuple(torch.rand(1024, 1, device=device, requires_grad=True) for _ in "xt") for _ in range(16)]
    return State(model, torch.optim.SGD(model.parameters(), lr=0.001), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for x, t in state.batches:
        u = state.model(torch.cat([x, t], dim=1))
        u_x = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        u_t = torch.autograd.grad(u.sum(), t, create_graph=True)[0]  # expect: repeated-backward-pass
        yield learn(state, u_t + u * u_x)


def fix(state: State) -> Iterator[Tensor]:
    for x, t in state.batches:
        u = state.model(torch.cat([x, t], dim=1))
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        yield learn(state, u_t + u * u_x)


def learn(state: State, residual: Tensor) -> Tensor:
    loss = residual.square().mean()
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
