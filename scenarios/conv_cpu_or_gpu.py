"""A large convolution is computed on the processor, though the machine may have a GPU.

32 filters of 7 by 7 by 3 over 100 images of 100 by 100 by 3 are 8.3 billion multiplications and additions that depend
only on their inputs, which is ideal for a GPU. For ten of them the source measures 3.86 s on a processor and 0.108 s on
a GPU, 35 times faster. PyTorch does not choose a GPU by itself: the module and its input have to be moved there, once.
The first convolution on a GPU takes far longer than the next, because libraries are loaded.

Without a GPU both variants do the same, and there is nothing to gain. A recording of a program that never asks for a
GPU does not show whether the machine has one, because asking would initialise CUDA in that program. So no rule reports
it.

Source: TensorFlow with GPU, Google Colab, "Observe TensorFlow speedup on GPU relative to CPU".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ()
effect = "time on a GPU"


@dataclass(frozen=True)
class State:
    device: str
    convolution: nn.Module
    images: Tensor
    steps: int = 24


def setup(device: str) -> State:
    torch.manual_seed(0)
    return State(device, nn.Conv2d(3, 32, 7, bias=False).requires_grad_(False), torch.randn(100, 3, 100, 100))


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(state.steps):
        yield state.convolution(state.images).sum()


def fix(state: State) -> Iterator[Tensor]:
    convolution, images = state.convolution.to(state.device), state.images.to(state.device)
    for _ in range(state.steps):
        yield convolution(images).sum()
