"""A convolutional network scores images with the channels first, the layout that libraries have to rearrange.

Images come as batch, channels, height, width, and are stored that way. A convolution sums over the channels, and is
faster if they are adjacent in memory. ``channels_last`` keeps the shape and changes the order in memory, and all layers
keep the layout of their input. How much this gains depends on layers, sizes and processor, so measure it.

Source: PyTorch tutorial "Channels Last Memory Format in PyTorch", and Performance Tuning Guide.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("channels-first-convolution",)
needs_measuring = True


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[Tensor]


def block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]


def setup(device: str) -> State:
    torch.manual_seed(0)
    count, size = (64, 224) if device == "cuda" else (8, 64)
    model = nn.Sequential(
        *block(3, 32), *block(32, 64), *block(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)
    )
    return State(model.to(device).eval(), list(torch.randn(24, count, 3, size, size, device=device)))


@torch.inference_mode()
def pitfall(state: State) -> Iterator[Tensor]:
    for images in state.batches:
        yield state.model(images)  # expect: channels-first-convolution


@torch.inference_mode()
def fix(state: State) -> Iterator[Tensor]:
    model = state.model.to(memory_format=torch.channels_last)
    for images in state.batches:
        yield model(images.to(memory_format=torch.channels_last))
