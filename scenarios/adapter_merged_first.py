"""A low-rank adapter is multiplied out to a whole weight before it is applied to the input.

An adapter adds the product of two thin matrices to a layer's weight. `F.linear(x, up @ down)` makes all of that
product, as large as the weight, in each forward pass, and its gradient in each backward pass.
`F.linear(F.linear(x, down), up)` gives the same and never makes it. `a @ b @ x` has the same fault, and so has an
`einsum` of three factors, which are multiplied from left to right.

Source: github.com/pytorch/pytorch, issue 60295 ("Optimize torch.einsum"), whose table shows orders of contraction that
differ by factors of 60 to 50,000; PyTorch's documentation of `torch.linalg.multi_dot`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("costly-product-order",)


@dataclass(frozen=True)
class State:
    base: nn.Module
    down: nn.Parameter
    up: nn.Parameter
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    base = nn.Linear(1536, 1536).to(device).requires_grad_(False)
    down = nn.Parameter(torch.randn(8, 1536, device=device) * 0.02)
    up = nn.Parameter(torch.randn(1536, 8, device=device) * 0.02)
    batches = [torch.randn(64, 1536, device=device) for _ in range(12)]
    return State(base, down, up, torch.optim.SGD([down, up], lr=1e-3, fused=True), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        result = state.base(batch) + nn.functional.linear(batch, state.up @ state.down)  # expect: costly-product-order
        loss = result.square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        inner = nn.functional.linear(batch, state.down)
        result = state.base(batch) + nn.functional.linear(inner, state.up)
        loss = result.square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
