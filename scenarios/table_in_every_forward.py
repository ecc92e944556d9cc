"""The sines of all positions are computed again in each forward pass.

They depend only on the length and the width, which no step changes. Computed once, with the model, the table costs an
addition per step.

Source: "Language Modeling with nn.Transformer" (PyTorch tutorials), whose PositionalEncoding keeps the table in a
buffer; models written by hand often do not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("redundant-recomputation",)

LENGTH, WIDTH = 4096, 64


@dataclass(frozen=True)
class State:
    model: nn.Module
    sequences: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 8).to(device)
    return State(model, torch.randn(24, 1, LENGTH, WIDTH, device=device))


def table(device: torch.device) -> Tensor:
    position = torch.arange(LENGTH, device=device)[:, None]
    angle = position * torch.exp(torch.arange(0, WIDTH, 2, device=device) * -0.1)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-2)
    for sequence in state.sequences:
        positions = table(sequence.device)  # expect: redundant-recomputation
        loss = state.model(sequence + positions).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-2)
    positions = table(state.sequences.device)
    for sequence in state.sequences:
        loss = state.model(sequence + positions).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()
