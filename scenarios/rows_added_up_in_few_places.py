"""A million rows are added up in eight groups, and all rows of a group wait for each other.

`index_add` on a GPU adds with atomic operations, and those for one place run one after another. With many rows for few
places that is nearly all of them. A product with a one-hot matrix gives the same sums and lets every multiprocessor add
its own part first.

Source: https://github.com/pytorch/pytorch/pull/182675, "High contention"
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

triggers = ("slow-scatter",)
effect = "time on a GPU"
needs_gpu = True

GROUPS, WIDTH = 8, 64


@dataclass(frozen=True)
class State:
    rows: Tensor
    group: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    count = 1_000_000 if device == "cuda" else 64
    rows = torch.randn(count, WIDTH, device=device)
    return State(rows, torch.randint(GROUPS, (count,), device=device))


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(24):
        sums = torch.zeros(GROUPS, WIDTH, device=state.rows.device)
        sums.index_add_(0, state.group, state.rows)  # expect: slow-scatter
        yield sums.square().mean().sqrt()


def fix(state: State) -> Iterator[Tensor]:
    for _ in range(24):
        chosen = functional.one_hot(state.group, GROUPS).to(state.rows.dtype)
        sums = chosen.T @ state.rows
        yield sums.square().mean().sqrt()
