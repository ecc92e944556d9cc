"""Multiplying one-hot vectors with a matrix takes as many times the work of a look-up as there are classes.

It is how the books write it down: an embedding is a linear layer on one-hot vectors. But the vectors are written to
memory, as integers and again as floats, and the product reads all of their zeros, forward and backward.

Source: PyTorch documentation, torch.nn.functional.one_hot and torch.nn.Embedding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("one-hot-product",)
CLASSES = 3_000


@dataclass(frozen=True)
class State:
    table: nn.Linear
    head: nn.Linear
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    """Items with their ratings."""
    torch.manual_seed(0)
    table, head = nn.Linear(CLASSES, 64, bias=False).to(device), nn.Linear(64, 1).to(device)
    items = [torch.randint(CLASSES, (256,), device=device) for _ in range(24)]
    return State(table, head, [(item, torch.rand(256, 1, device=device)) for item in items])


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD([*state.table.parameters(), *state.head.parameters()], lr=0.1)
    for item, rating in state.batches:
        optimizer.zero_grad()
        hot = nn.functional.one_hot(item, CLASSES).float()  # expect: one-hot-product
        vectors = state.table(hot)
        loss = nn.functional.mse_loss(state.head(vectors.relu()), rating)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD([*state.table.parameters(), *state.head.parameters()], lr=0.1)
    for item, rating in state.batches:
        optimizer.zero_grad()
        vectors = nn.functional.embedding(item, state.table.weight.t())
        loss = nn.functional.mse_loss(state.head(vectors.relu()), rating)
        loss.backward()
        optimizer.step()
        yield loss.detach()
