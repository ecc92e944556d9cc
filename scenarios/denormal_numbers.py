"""Momentum of weights that get no more gradients decays into denormal numbers, with which a CPU multiplies slowly.

Words that no longer come have gradients of zero, and their momentum shrinks by a tenth in each step. After 830 steps
it is below the smallest normal number of float32, and rounding keeps it from ever reaching zero. `set_flush_denormal`
makes the processor take such numbers for zero.

Source: https://github.com/pytorch/pytorch/issues/4737 and
https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("denormal-numbers",)
LAYERS, WORDS, WIDTH, SEEN = 16, 256, 96, 32
LATE = 3e-39
"""What 850 steps leave of a momentum of 2."""


@dataclass(frozen=True)
class State:
    tables: list[Tensor]
    momenta: list[Tensor]
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    tables = [torch.randn(WORDS, WIDTH, device=device) for _ in range(LAYERS)]
    momenta = [torch.rand(WORDS, WIDTH, device=device) * LATE for _ in tables]
    return State(tables, momenta, [torch.randint(SEEN, (64,), device=device) for _ in range(24)])


def pitfall(state: State) -> Iterator[Tensor]:
    for words in state.batches:
        for table, momentum in zip(state.tables, state.momenta, strict=True):
            gradient = torch.zeros_like(table).index_add_(0, words, table[words])
            momentum.mul_(0.9).add_(gradient)  # expect: denormal-numbers
            table.sub_(momentum, alpha=0.01)
        yield table[words].square().mean()


def fix(state: State) -> Iterator[Tensor]:
    torch.set_flush_denormal(True)
    for words in state.batches:
        for table, momentum in zip(state.tables, state.momenta, strict=True):
            gradient = torch.zeros_like(table).index_add_(0, words, table[words])
            momentum.mul_(0.9).add_(gradient)
            table.sub_(momentum, alpha=0.01)
        yield table[words].square().mean()
