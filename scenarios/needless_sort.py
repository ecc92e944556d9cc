"""A whole ranking is made to read its first few places.

Sorting looks like the way to the best scores, and in Python it is. Here each row of thousands of scores is put in
order with an index for each, and twenty of them are read.

Source: PyTorch documentation, torch.topk and torch.argsort.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("needless-sort",)


@dataclass(frozen=True)
class State:
    users: list[Tensor]
    items: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    users = [torch.randn(32, 16, device=device) for _ in range(24)]
    return State(users, torch.randn(6000, 16, device=device))


def pitfall(state: State) -> Iterator[Tensor]:
    for users in state.users:
        scores = users @ state.items.T
        ranking = scores.argsort(dim=1, descending=True)  # expect: needless-sort
        yield state.items[ranking[:, :20]].mean()


def fix(state: State) -> Iterator[Tensor]:
    for users in state.users:
        scores = users @ state.items.T
        best = scores.topk(20, dim=1).indices
        yield state.items[best].mean()
