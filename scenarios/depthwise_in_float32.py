"""A depthwise layer is trained in float32 with the channels first, in kernels that use little of the device.

Each channel has a weight of its own, so there is no product of matrices in it. In float32 PyTorch sums the gradient of
each weight over all images in one block, and reads the images anew for each of the 49. In 16 bits with the channels
last, cuDNN has kernels for such layers.

Source: https://github.com/pytorch/pytorch/issues/18631, depthwise convolutions slower than dense ones
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("slow-convolution",)
effect = "time on a GPU"
needs_gpu = True


@dataclass(frozen=True)
class State:
    images: Tensor
    layer: nn.Conv2d


def setup(device: str) -> State:
    torch.manual_seed(0)
    batch, channels, size = (64, 128, 56) if device == "cuda" else (4, 16, 16)
    layer = nn.Conv2d(channels, channels, 7, padding=3, groups=channels, device=device)
    return State(torch.randn(batch, channels, size, size, device=device), layer)


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(12):
        state.layer.zero_grad()
        loss = state.layer(state.images).square().mean()  # expect: slow-convolution
        loss.backward()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    layer = state.layer.to(torch.bfloat16, memory_format=torch.channels_last)
    images = state.images.to(torch.bfloat16, memory_format=torch.channels_last)
    for _ in range(12):
        layer.zero_grad()
        loss = layer(images).float().square().mean()
        loss.backward()
        yield loss.detach()
