"""Keeping one row of each batch's features keeps the features of the whole batch.

``features[:1]`` is not a small tensor but a view into the storage of ``features``, which lives as long as the view. A
few examples per batch, kept to be shown later, cost as much memory as keeping everything. ``clone`` copies the row and
releases the rest.

Source: PyTorch documentation, Tensor Views; PyTorch documentation, Serialization semantics, the part on views and the
storage that is saved with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("oversized-storage",)
effect = "memory"


@dataclass(frozen=True)
class State:
    encoder: nn.Module
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 2048)).to(device).eval()
    return State(encoder, [torch.randn(512, 128, device=device) for _ in range(24)])


def pitfall(state: State) -> Iterator[Tensor]:
    examples = []
    for x in state.batches:
        with torch.no_grad():
            features = state.encoder(x)
        examples.append(features[:1])  # expect: oversized-storage
        yield features.mean() + sum(example.sum() for example in examples)


def fix(state: State) -> Iterator[Tensor]:
    examples = []
    for x in state.batches:
        with torch.no_grad():
            features = state.encoder(x)
        examples.append(features[:1].clone())
        yield features.mean() + sum(example.sum() for example in examples)
