"""Casting the result of every stage to double, only to cast it back to float in the next, copies the data both ways.

Each stage expects float32 and returns float64 "to be safe". Nothing is computed in double precision: the numbers are
copied into a tensor twice the size and back. A single type for the whole pipeline gives the same numbers.

Source: PyTorch documentation, Tensor.to (returns a copy wherever the type differs).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("dtype-round-trip",)


@dataclass(frozen=True)
class State:
    stages: list[Callable[[Tensor], Tensor]]
    recordings: list[Tensor]


def remove_offset(x: Tensor) -> Tensor:
    return x - x.mean(dim=-1, keepdim=True)


def scale_to_peak(x: Tensor) -> Tensor:
    return x / x.abs().amax(dim=-1, keepdim=True)


def soften(x: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool1d(x, kernel_size=4, stride=1)


def limit(x: Tensor) -> Tensor:
    return x.clamp(-0.8, 0.8)


def setup(device: str) -> State:
    torch.manual_seed(0)
    sessions = [0.1 * torch.randn(6, 64, 16000, device=device) for _ in range(5)]
    recordings = [recording for session in sessions for recording in session]
    return State([remove_offset, scale_to_peak, soften, limit, remove_offset], recordings)


def pitfall(state: State) -> Iterator[Tensor]:
    for recording in state.recordings:
        x = recording
        for stage in state.stages:
            x = stage(x.float()).double()  # expect: dtype-round-trip
        yield x.float().square().mean(dim=1)


def fix(state: State) -> Iterator[Tensor]:
    for recording in state.recordings:
        x = recording
        for stage in state.stages:
            x = stage(x)
        yield x.square().mean(dim=1)
