"""A table is added to a transposed one in each step: no two neighbours of the one are neighbours in the other.

An elementwise kernel reads its tensors in one order. Of a transposed one it takes a single number from each line of
memory, and the line is gone from the cache before its neighbours are asked for. Transposed once, outside the loop, the
table is read as fast as memory allows.

Source: PyTorch documentation, "Tensor Views"; the kernels are in `aten/src/ATen/native/cuda/CUDALoops.cuh`
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("slow-elementwise",)
effect = "time on a GPU"
needs_gpu = True


@dataclass(frozen=True)
class State:
    scores: Tensor
    distances: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    size = 16_384 if device == "cuda" else 64
    return State(torch.randn(size, size, device=device), torch.randn(size, size, device=device))


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(24):
        both = state.scores + state.distances.t()  # expect: slow-elementwise
        yield both[:8, :8].square().mean()


def fix(state: State) -> Iterator[Tensor]:
    turned = state.distances.t().contiguous()
    for _ in range(24):
        both = state.scores + turned
        yield both[:8, :8].square().mean()
