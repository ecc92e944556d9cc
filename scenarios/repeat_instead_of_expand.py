"""Repeating a tensor with ``repeat`` so that its shape fits the other operand writes all the copies to memory.

In languages without broadcasting, shapes must be made equal before subtracting. Arithmetic on tensors does that by
itself: a dimension of size one fits any size, and nothing is copied. If a shape is really needed, ``expand`` gives a
view of it.

Source: PyTorch documentation, Tensor.repeat ("copies the tensor's data", unlike expand) and broadcasting semantics.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("materialised-broadcast",)


@dataclass(frozen=True)
class State:
    batches: list[list[Tensor]]
    centers: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    batches = 0.5 * torch.randn(30, 10, 96, 48, device=device)
    return State([list(clouds) for clouds in batches], torch.randn(128, 48, device=device))


def pitfall(state: State) -> Iterator[Tensor]:
    for clouds in state.batches:
        nearest = []
        for points in clouds:
            repeated = points.unsqueeze(1).repeat(1, len(state.centers), 1)  # expect: materialised-broadcast
            distances = torch.linalg.vector_norm(repeated - state.centers, dim=-1)
            nearest.append(distances.amin(dim=1))
        yield torch.stack(nearest)


def fix(state: State) -> Iterator[Tensor]:
    for clouds in state.batches:
        nearest = []
        for points in clouds:
            expanded = points.unsqueeze(1)
            distances = torch.linalg.vector_norm(expanded - state.centers, dim=-1)
            nearest.append(distances.amin(dim=1))
        yield torch.stack(nearest)
