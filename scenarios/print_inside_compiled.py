"""A print that was left in a compiled function, here with a file to print to.

`print` must happen between two operations, so the compiler ends its graph there and begins another after it. The same
goes for a logger. The shape is known without the tensor, so the caller can print it as well.

Source: PyTorch documentation, torch.compile troubleshooting, "Graph breaks" (`print` is among the causes it names).
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("graph-break",)


@dataclass(frozen=True)
class State:
    inputs: list[Tensor]
    weight: Tensor
    log: io.StringIO


def setup(device: str) -> State:
    torch.manual_seed(0)
    weight = torch.randn(32, 32, device=device) / 32**0.5
    return State([torch.randn(60, 16, 32, device=device) for _ in range(40)], weight, io.StringIO())


@torch.no_grad()
def pitfall(state: State) -> Iterator[Tensor]:
    log = state.log

    @torch.compile
    def block(x: Tensor, weight: Tensor) -> Tensor:
        hidden = torch.tanh(x @ weight)
        print("hidden", tuple(hidden.shape), file=log)  # expect: graph-break
        return torch.relu(hidden @ weight).sum(dim=0)

    for batches in state.inputs:
        total = torch.zeros_like(batches[0, 0])
        for x in batches:
            total = total + block(x, state.weight)
        yield total.mean()


@torch.no_grad()
def fix(state: State) -> Iterator[Tensor]:
    log = state.log

    @torch.compile
    def block(x: Tensor, weight: Tensor) -> Tensor:
        hidden = torch.tanh(x @ weight)
        return torch.relu(hidden @ weight).sum(dim=0)

    for batches in state.inputs:
        total = torch.zeros_like(batches[0, 0])
        for x in batches:
            print("hidden", (len(x), state.weight.shape[1]), file=log)
            total = total + block(x, state.weight)
        yield total.mean()
