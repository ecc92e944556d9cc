"""Sequences of any length for a model that was compiled for fixed sizes.

`dynamic=False` makes the fastest code for a single size, but each batch here has another, so nearly every step compiles
the model again. People hit the compiler's limit of eight and raise it, as here. With the length marked as dynamic there
is only one compilation.

Source: PyTorch documentation, torch.compile, "Dynamic shapes" (`mark_dynamic`) and "Recompilation".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("recompilation",)


@dataclass(frozen=True)
class State:
    sequences: list[Tensor]
    weight: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    torch._dynamo.reset()  # as in a new process
    torch._dynamo.config.recompile_limit = 64
    weight = torch.randn(32, 32, device=device) / 32**0.5
    return State([torch.randn(64 + 3 * i, 32, device=device) for i in range(24)], weight)


@torch.no_grad()
def pitfall(state: State) -> Iterator[Tensor]:
    @torch.compile(dynamic=False)  # expect: recompilation
    def encode(tokens: Tensor, weight: Tensor) -> Tensor:
        return torch.tanh(tokens @ weight).mean(dim=0)

    for tokens in state.sequences:
        yield encode(tokens, state.weight).sum()


@torch.no_grad()
def fix(state: State) -> Iterator[Tensor]:
    @torch.compile
    def encode(tokens: Tensor, weight: Tensor) -> Tensor:
        return torch.tanh(tokens @ weight).mean(dim=0)

    for tokens in state.sequences:
        torch._dynamo.mark_dynamic(tokens, 0)
        yield encode(tokens, state.weight).sum()
