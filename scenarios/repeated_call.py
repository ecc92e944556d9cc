"""Each sample gets a table of filters of its own, although all are alike.

The function that makes the table is called where the table is needed. It takes a few numbers that never change, so each
of its calls gives the same table, and building one in NumPy takes longer than what it is used for.

Source: pytorch/audio issue 286 and its transforms, which keep the filters as a buffer since.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

triggers = ("repeated-call",)
BINS, BANDS, STEPS = 257, 64, 400


@dataclass(frozen=True)
class State:
    weight: Tensor
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    return State(torch.randn(BANDS, device=device), [torch.rand(3, BINS, device=device) for _ in range(20)])


def filters(bins: int, bands: int) -> np.ndarray:
    """Overlapping triangles, one per band."""
    edges = 10 ** np.linspace(0, np.log10(bins), bands + 2)
    at = np.arange(bins)
    table = np.zeros((bands, bins), dtype=np.float32)
    for band in range(bands):
        low, middle, high = edges[band : band + 3]
        table[band] = np.clip(np.minimum((at - low) / (middle - low), (high - at) / (high - middle)), 0, None)
    return table


def mix(weight: Tensor, spectrum: Tensor, table: np.ndarray) -> Tensor:
    bands = torch.from_numpy(table).to(spectrum)
    return (weight * torch.log((bands * spectrum).sum(1) + 1e-6)).mean()


def pitfall(state: State) -> Iterator[Tensor]:
    for i in range(STEPS):
        batch = state.batches[i % len(state.batches)]
        yield torch.stack(
            [mix(state.weight, sample, filters(BINS, BANDS)) for sample in batch]  # expect: repeated-call
        ).mean()


def fix(state: State) -> Iterator[Tensor]:
    table = filters(BINS, BANDS)
    for i in range(STEPS):
        batch = state.batches[i % len(state.batches)]
        yield torch.stack([mix(state.weight, sample, table) for sample in batch]).mean()
