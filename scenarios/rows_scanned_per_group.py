"""Each group's rows are looked for among all rows, though sorting them once would put each group side by side.

A ranking is judged query by query. The loop over queries compares all rows with each of them and picks what is equal:
150 queries over 20,000 rows are three million comparisons, and as many elements of masks to search.

Source: torchmetrics, issue 1241 (retrieval metrics are slow for many queries).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("rows-scanned-per-group",)
ROWS, QUERIES = 20_000, 150


@dataclass(frozen=True)
class State:
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    shuffled = [torch.randperm(ROWS) % QUERIES for _ in range(24)]
    return State([(queries.to(device), torch.rand(ROWS, device=device)) for queries in shuffled])


def pitfall(state: State) -> Iterator[Tensor]:
    for queries, scores in state.batches:
        best = []
        for query in range(QUERIES):
            mask = queries == query  # expect: rows-scanned-per-group
            best.append(scores[mask].amax())
        yield torch.stack(best).mean()


def fix(state: State) -> Iterator[Tensor]:
    for queries, scores in state.batches:
        order = queries.argsort(stable=True)
        sizes = torch.bincount(queries, minlength=QUERIES).tolist()
        best = [of_query.amax() for of_query in scores[order].split(sizes)]
        yield torch.stack(best).mean()
