"""Four layers of 16 features read the same million rows, each of them anew, in kernels that are made for wide tiles.

A product with so narrow a weight only reads and writes, and the library's tiles are mostly empty. One product with all
four weights side by side reads the rows once.

Source: NVIDIA, Matrix Multiplication Background User's Guide, "Tile quantization"; query, key and value are joined for
the same reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("skinny-product",)
effect = "time on a GPU"
needs_gpu = True

WIDTH, NARROW = 48, 16


@dataclass(frozen=True)
class State:
    rows: Tensor
    weights: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    count = 1_000_000 if device == "cuda" else 64
    rows = torch.randn(count, WIDTH, device=device)
    return State(rows, [torch.randn(WIDTH, NARROW, device=device) / WIDTH**0.5 for _ in range(4)])


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(24):
        made = [state.rows @ weight for weight in state.weights]  # expect: skinny-product
        yield torch.stack([one.mean() for one in made]).sum()


def fix(state: State) -> Iterator[Tensor]:
    joined = torch.cat(state.weights, dim=1)
    for _ in range(24):
        made = (state.rows @ joined).split(NARROW, dim=1)
        yield torch.stack([one.mean() for one in made]).sum()
