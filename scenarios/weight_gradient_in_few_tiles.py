"""A sum over half a million rows makes a result of 256x256, which a handful of multiprocessors compute.

The gradient of a narrow weight over a large batch has few tiles and a long sum. Each tile belongs to one
multiprocessor, so most of the device has no work. The same sum in 128 parts gives every multiprocessor some of it.

Source: https://arxiv.org/abs/2301.03598 (Osama et al., Stream-K, section 2), and PyTorch's `max-autotune`, which splits
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("few-tiles",)
effect = "time on a GPU"
needs_gpu = True

PARTS, WIDTH = 128, 256


@dataclass(frozen=True)
class State:
    activations: Tensor
    errors: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    rows = PARTS * (4096 if device == "cuda" else 2)
    factors = [torch.randn(rows, WIDTH, device=device) / rows**0.25 for _ in range(2)]
    return State(*factors)


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(24):
        gradient = state.activations.T @ state.errors  # expect: few-tiles
        yield gradient.square().mean().sqrt()


def fix(state: State) -> Iterator[Tensor]:
    for _ in range(24):
        left, right = (one.view(PARTS, -1, WIDTH) for one in (state.activations, state.errors))
        gradient = torch.bmm(left.transpose(1, 2), right).sum(0)
        yield gradient.square().mean().sqrt()
