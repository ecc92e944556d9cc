"""Looping in Python over the elements of a tensor runs several operations, each on one number.

Code from plain Python, or from a formula with indices, treats a tensor like a list. But each ``x[i]`` makes a new
tensor, and each sum of two of them is an operation with all its bookkeeping. It takes microseconds instead of a
nanosecond inside a single operation over the whole tensor.

Source: PyTorch documentation, "Broadcasting semantics" (how to say it without the loop); NumPy documentation,
"What is NumPy?", the part on vectorisation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("tensor-element-loop",)


@dataclass(frozen=True)
class State:
    encoder: nn.Module
    importance: Tensor
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv1d(8, 32, 9, padding=4), nn.ReLU(), nn.Conv1d(32, 1, 9, padding=4), nn.Flatten(0))
    batches = [torch.randn(1, 8, 2000, device=device) for _ in range(16)]
    return State(encoder.to(device).requires_grad_(False), torch.rand(2000, device=device), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for signal in state.batches:
        energy = state.encoder(signal)
        score = torch.zeros((), device=signal.device)
        for i in range(len(energy)):
            score = score + state.importance[i] * energy[i]  # expect: tensor-element-loop
        yield score


def fix(state: State) -> Iterator[Tensor]:
    for signal in state.batches:
        energy = state.encoder(signal)
        score = torch.zeros((), device=signal.device)
        score = score + (state.importance * energy).sum()
        yield score
