"""Writing out the formula of the GELU activation passes over the data eight times in the forward pass alone.

Implementations of transformers copy the formula from the paper. Each power, product and sum in it is a separate
operation that reads a whole tensor and writes another. ``nn.functional.gelu`` computes the same in a single pass.

Source: PyTorch documentation, torch.nn.functional.gelu (approximate="tanh").
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unfused-pointwise",)


@dataclass(frozen=True)
class State:
    widen: nn.Linear
    narrow: nn.Linear
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    widen, narrow = nn.Linear(64, 1024).to(device), nn.Linear(1024, 64).to(device)
    samples = 0.5 * torch.randn(60, 1024, 64, device=device)
    return State(widen, narrow, list(samples))


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))  # expect: unfused-pointwise


def pitfall(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        with torch.inference_mode():
            y = state.narrow(gelu(state.widen(x)))
        yield y.mean(dim=0)


def fix(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        with torch.inference_mode():
            y = state.narrow(nn.functional.gelu(state.widen(x), approximate="tanh"))
        yield y.mean(dim=0)
