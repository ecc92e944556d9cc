"""Scaling every row of a matrix to length one in a Python loop runs a handful of operations for each row.

A loop over the rows reads like the formula for one vector, and ``for i in range(len(x))`` is how people work on lists.
With ``dim=1`` the norm is taken of all rows at once, and broadcasting divides each row by its own.

Source: PyTorch documentation, torch.linalg.vector_norm (dim) and torch.nn.functional.normalize.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("tensor-element-loop",)


@dataclass(frozen=True)
class State:
    queries: list[Tensor]
    catalogue: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    catalogue = torch.nn.functional.normalize(torch.randn(1000, 64, device=device), dim=1)
    return State([torch.randn(800, 64, device=device) for _ in range(30)], catalogue)


def pitfall(state: State) -> Iterator[Tensor]:
    for embeddings in state.queries:
        unit = torch.empty_like(embeddings)
        for i in range(len(embeddings)):
            unit[i] = embeddings[i] / embeddings[i].norm()  # expect: tensor-element-loop
        yield (unit @ state.catalogue.T).amax(dim=1)


def fix(state: State) -> Iterator[Tensor]:
    for embeddings in state.queries:
        unit = embeddings / torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
        yield (unit @ state.catalogue.T).amax(dim=1)
