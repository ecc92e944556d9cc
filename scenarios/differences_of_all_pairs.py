"""Writing out the differences of all pairs to find the nearest centres.

Broadcasting makes it easy to subtract every centre from every point: a table of points, centres and features, of which
only a sum is wanted. It is written to memory and read back by each of the three operators.

Source: PyTorch documentation, `torch.cdist`; KeOps documentation, "Why using KeOps?" (memory footprint of distance
matrices written out with broadcasting).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("large-intermediate",)
CENTRES, FEATURES = 256, 64


@dataclass(frozen=True)
class State:
    centres: Tensor
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    centres = torch.randn(CENTRES, FEATURES, device=device)
    return State(centres, [torch.randn(256, FEATURES, device=device) for _ in range(24)])


def pitfall(state: State) -> Iterator[Tensor]:
    for points in state.batches:
        distances = (points[:, None] - state.centres).square().sum(-1)  # expect: large-intermediate
        yield distances.argmin(1)


def fix(state: State) -> Iterator[Tensor]:
    for points in state.batches:
        distances = torch.cdist(points, state.centres)
        yield distances.argmin(1)
