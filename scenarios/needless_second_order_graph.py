"""`create_graph=True` in first-order meta-learning, whose inner gradients are constants.

Meta-learning differentiates its inner steps, and then needs the graph of their gradients. Its first-order form detaches
them, but the flag stays in many programs that went over to it. Each operator of the inner backward passes then makes a
node that nothing ever runs.

Source: Pulkit-Khandelwal/medical-mldg-seg issue 2, where the flag is replaced for the first-order approximation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

triggers = ("needless-second-order-graph",)


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    tasks: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(24, 24), nn.Tanh())]
    model = nn.Sequential(nn.Linear(1, 24), *layers, nn.Linear(24, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    inputs = [6 * torch.rand(16, 1, device=device) for _ in range(24)]
    return State(model, optimizer, [(x, torch.sin(x)) for x in inputs])


def pitfall(state: State) -> Iterator[Tensor]:
    names = [name for name, _ in state.model.named_parameters()]
    for x, y in state.tasks:
        weights = list(state.model.parameters())
        for _ in range(5):
            out = functional_call(state.model, dict(zip(names, weights, strict=True)), (x,))
            error = (out - y).square().mean()
            grads = torch.autograd.grad(error, weights, create_graph=True)  # expect: needless-second-order-graph
            weights = [w - 0.01 * g.detach() for w, g in zip(weights, grads, strict=True)]
        loss = (functional_call(state.model, dict(zip(names, weights, strict=True)), (x,)) - y).square().mean()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    names = [name for name, _ in state.model.named_parameters()]
    for x, y in state.tasks:
        weights = list(state.model.parameters())
        for _ in range(5):
            out = functional_call(state.model, dict(zip(names, weights, strict=True)), (x,))
            error = (out - y).square().mean()
            grads = torch.autograd.grad(error, weights)
            weights = [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]
        loss = (functional_call(state.model, dict(zip(names, weights, strict=True)), (x,)) - y).square().mean()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
