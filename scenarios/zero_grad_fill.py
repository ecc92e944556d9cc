"""Filling gradients with zeros, instead of dropping them, makes the backward pass add to zeros.

``zero_grad(set_to_none=False)`` is what ``zero_grad()`` did before PyTorch 2.0, and it lives on in many scripts. It
writes each gradient once; the backward pass then computes each in a new tensor and adds it to the zeros. By default the
gradients become ``None``, and the backward pass hands over what it computed. A table of word vectors shows the
difference, because its gradient is as large as the table.

Source: PyTorch documentation, torch.optim.Optimizer.zero_grad; PyTorch tutorials, Performance Tuning Guide.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("zero-filled-gradients",)


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(80_000, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    words = torch.randint(80_000, (24, 256, 12), device=device)
    classes = torch.randint(4, (24, 256), device=device)
    return State(model, list(zip(words, classes, strict=True)))


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-3, momentum=0.9)
    for x, y in state.batches:
        optimizer.zero_grad(set_to_none=False)  # expect: zero-filled-gradients
        loss = nn.functional.cross_entropy(state.model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-3, momentum=0.9)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.detach()
