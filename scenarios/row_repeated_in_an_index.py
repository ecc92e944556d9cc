"""Rows are picked with `x[index]`, whose gradient sorts the index in every step and adds up equal ones in turn.

The gradient of indexing with a tensor is `index_put` with `accumulate`: it sorts all indices, and one thread adds up
each run of equal ones. Half of the indices here are the same, as a padded graph or a padded sentence has them. The
index does not change, so each row can be looked up once and weighted with how often it occurs.

Source: https://github.com/pytorch/pytorch/pull/171381 and https://github.com/pytorch/pytorch/issues/15245
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("slow-scatter",)
effect = "time on a GPU"
needs_gpu = True

ROWS, WIDTH = 50_000, 64


@dataclass(frozen=True)
class State:
    table: Tensor
    index: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    count = 1_000_000 if device == "cuda" else 64
    index = torch.randint(ROWS, (count,), device=device)
    index[: count // 2] = 0
    return State(torch.randn(ROWS, WIDTH, device=device, requires_grad=True), index)


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(24):
        state.table.grad = None
        picked = state.table[state.index]  # expect: slow-scatter
        loss = picked.square().mean()
        loss.backward()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    seen, times = state.index.unique(return_counts=True)
    count = times.to(state.table.dtype)
    for _ in range(24):
        state.table.grad = None
        loss = (state.table.index_select(0, seen).square().sum(1) * count).sum() / (state.index.numel() * WIDTH)
        loss.backward()
        yield loss.detach()
