"""Adding one column block after another with torch.hstack copies the whole matrix of features each time.

With data frames, columns are added one by one, and here each feature map is joined to the others the same way. But a
tensor cannot grow in place: every ``hstack`` allocates a wider matrix and copies the old one. A single ``hstack`` of a
list at the end moves each block once.

Source: NumPy documentation, numpy.hstack, and PyTorch documentation, torch.hstack, which takes any number of tensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("growing-concatenation",)


@dataclass(frozen=True)
class State:
    frequencies: list[Tensor]
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    frequencies = [torch.randn(16, width, device=device) for width in range(8, 68)]  # equal ones could be one product
    return State(frequencies, [torch.randn(1500, 16, device=device) for _ in range(30)])


def pitfall(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        features = x
        for frequency in state.frequencies:
            features = torch.hstack((features, torch.relu(x @ frequency)))  # expect: growing-concatenation
        yield features.mean(dim=0)


def fix(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        blocks = [x]
        for frequency in state.frequencies:
            blocks.append(torch.relu(x @ frequency))
        features = torch.hstack(blocks)
        yield features.mean(dim=0)
