"""An embedding table with a dense gradient is written and updated whole, though a batch looks up only a few rows.

``nn.Embedding`` gives its table a gradient of the table's own size unless ``sparse=True`` is set. Rows that no batch
looks up hold zeros there, and the optimizer adds these zeros to every row. With a sparse gradient it only updates the
rows that were looked up. SGD without momentum and Adagrad then compute exactly the same.

Source: PyTorch documentation, torch.nn.Embedding, the note on ``sparse``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("dense-embedding-gradient",)


@dataclass(frozen=True)
class State:
    table: Tensor
    head: nn.Linear
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    rows, width = (2_000_000, 128) if device == "cuda" else (100_000, 32)
    batches = [(torch.randint(rows, (64, 8), device=device), torch.randn(64, 1, device=device)) for _ in range(24)]
    return State(torch.randn(rows, width, device=device), nn.Linear(width, 1).to(device), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    table = nn.Embedding.from_pretrained(state.table, freeze=False)
    optimizer = torch.optim.Adagrad([*table.parameters(), *state.head.parameters()], lr=0.1)
    for words, targets in state.batches:
        optimizer.zero_grad()
        features = table(words)  # expect: dense-embedding-gradient
        loss = nn.functional.mse_loss(state.head(features.mean(1)), targets)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    table = nn.Embedding.from_pretrained(state.table, freeze=False, sparse=True)
    optimizer = torch.optim.Adagrad([*table.parameters(), *state.head.parameters()], lr=0.1)
    for words, targets in state.batches:
        optimizer.zero_grad()
        features = table(words)
        loss = nn.functional.mse_loss(state.head(features.mean(1)), targets)
        loss.backward()
        optimizer.step()
        yield loss.detach()
