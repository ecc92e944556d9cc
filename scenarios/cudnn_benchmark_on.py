"""cuDNN tries all of its kernels for images that have a new size each time, and never needs the answer again.

With ``torch.backends.cudnn.benchmark = True``, cuDNN runs every kernel that it has for a convolution, forward and
backward, when it sees a size for the first time, and keeps the fastest. If every step has images of a new size, every
step waits for a dozen kernels where one would do. The process keeps the answers, so no earlier run warms it up.

Its recording is missing: the one made so far followed a run of the same sizes.

Source: PyTorch tutorials, Performance Tuning Guide, "Enable cuDNN auto-tuner"; pytorch/pytorch issue 2759, where it
made steps ten times as long.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("cudnn-benchmark-mismatch",)
effect = "time on a GPU"
needs_gpu = True
recorded_cold = True


@dataclass(frozen=True)
class State:
    model: nn.Module
    images: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    width, smallest = (128, 128) if device == "cuda" else (4, 16)
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    images = [torch.randn(8, 3, smallest + 2 * i, smallest + i, device=device) for i in range(24)]
    return State(model.to(device), images)


def pitfall(state: State) -> Iterator[Tensor]:
    torch.backends.cudnn.benchmark = True
    for images in state.images:
        loss = state.model(images).square().mean()  # expect: cudnn-benchmark-mismatch
        loss.backward()
        state.model.zero_grad()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    torch.backends.cudnn.benchmark = False
    for images in state.images:
        loss = state.model(images).square().mean()
        loss.backward()
        state.model.zero_grad()
        yield loss.detach()
