"""Growing a tensor with torch.cat inside a loop copies everything gathered so far, each time round.

It looks like ``list.append``. But a tensor cannot grow in place, so each call allocates a longer one and copies the old
one into it: n pieces cost on the order of n squared copies. Append the pieces to a Python list and concatenate once, or
write them into a preallocated tensor.

Source: PyTorch documentation, torch.cat; PyTorch tutorials, Performance Tuning Guide, the part on preallocating memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("growing-concatenation",)


@dataclass(frozen=True)
class State:
    projection: Tensor
    documents: list[list[Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    lengths = torch.randint(100, 400, (60,)).tolist()
    documents = [[torch.randn(length, 128, device=device) for length in lengths] for _ in range(2)]
    return State(torch.randn(128, 128, device=device) / 12, documents * 10)


def pitfall(state: State) -> Iterator[Tensor]:
    for document in state.documents:
        encoded = torch.empty(0, 128, device=document[0].device)
        for paragraph in document:
            encoded = torch.cat([encoded, paragraph @ state.projection])  # expect: growing-concatenation
        yield encoded.amax()


def fix(state: State) -> Iterator[Tensor]:
    for document in state.documents:
        parts = []
        for paragraph in document:
            parts.append(paragraph @ state.projection)
        encoded = torch.cat(parts)
        yield encoded.amax()
