"""The neighbours of each node are averaged by a product with a table that is nearly all zeros.

Each of 1,500 nodes has a few neighbours among 2,000. A dense table holds a share for each of them, and a zero for all
others, and its product with the features multiplies all of it. `embedding_bag` reads the neighbours alone.

Source: github.com/pyg-team/pytorch_geometric, issue 7364, in which a dense adjacency fills the memory; the samplers of
GraphSAGE in PyTorch, which average neighbours by such a mask.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("mostly-zero-factor",)
NODES, NEIGHBOURS = 1500, 5


@dataclass(frozen=True)
class State:
    features: Tensor
    head: nn.Module
    optimizer: torch.optim.Optimizer
    tables: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    features = torch.randn(2000, 256, device=device)
    head = nn.Linear(256, 8).to(device)
    tables = []
    for _ in range(12):
        columns = torch.rand(NODES, 2000, device=device).topk(NEIGHBOURS).indices
        table = torch.zeros(NODES, 2000, device=device).scatter_(1, columns, 1 / NEIGHBOURS)
        tables.append((columns, table))
    return State(features, head, torch.optim.SGD(head.parameters(), lr=1e-3, fused=True), tables)


def pitfall(state: State) -> Iterator[Tensor]:
    for _, table in state.tables:
        state.optimizer.zero_grad()
        means = table @ state.features  # expect: mostly-zero-factor
        loss = state.head(means.relu()).square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for columns, _ in state.tables:
        state.optimizer.zero_grad()
        means = nn.functional.embedding_bag(columns, state.features, mode="mean")
        loss = state.head(means.relu()).square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
