"""A compiled recurrence reads its norm as a Python number, to keep it within bounds.

The compiler cannot trace code that depends on a number it would have to compute first. So it ends the graph at
`.item()` and starts another after it, and each of the many short calls enters compiled code twice. Written with
tensors, the bound is part of a single graph.

Source: PyTorch documentation, torch.compile troubleshooting, "Graph breaks" (`.item()` is the first cause it names).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("graph-break",)


@dataclass(frozen=True)
class State:
    inputs: list[Tensor]
    weight: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    weight = torch.randn(32, 32, device=device) / 32**0.5
    return State([torch.randn(60, 16, 32, device=device) for _ in range(40)], weight)


@torch.no_grad()
def pitfall(state: State) -> Iterator[Tensor]:
    @torch.compile
    def cell(hidden: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        hidden = torch.tanh(hidden @ weight) + x
        if hidden.square().mean().item() > 1.0:  # expect: graph-break
            hidden = hidden * 0.5
        return torch.relu(hidden @ weight)

    for sequence in state.inputs:
        hidden = torch.zeros_like(sequence[0])
        for x in sequence:
            hidden = cell(hidden, x, state.weight)
        yield hidden.mean()


@torch.no_grad()
def fix(state: State) -> Iterator[Tensor]:
    @torch.compile
    def cell(hidden: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        hidden = torch.tanh(hidden @ weight) + x
        hidden = torch.where(hidden.square().mean() > 1.0, hidden * 0.5, hidden)
        return torch.relu(hidden @ weight)

    for sequence in state.inputs:
        hidden = torch.zeros_like(sequence[0])
        for x in sequence:
            hidden = cell(hidden, x, state.weight)
        yield hidden.mean()
