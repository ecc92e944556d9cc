"""A network sees images of one size in every step, and cuDNN never tries which of its kernels is fastest for them.

By default cuDNN chooses a kernel by rules. With ``torch.backends.cudnn.benchmark = True`` it runs all of them once for
each size and keeps the fastest, which costs part of the first step. The gain depends on sizes, GPU and version, from
nothing to a third, so measure it.

Source: PyTorch tutorials, Performance Tuning Guide, "Enable cuDNN auto-tuner".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("cudnn-benchmark-mismatch",)
effect = "time on a GPU"
needs_gpu = True
needs_measuring = True


@dataclass(frozen=True)
class State:
    model: nn.Module
    images: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    width, size = (96, 112) if device == "cuda" else (4, 16)
    layers = [
        nn.Conv2d(3, width, 7, 2, 3),
        nn.ReLU(),
        nn.Conv2d(width, width, 5, 1, 2, groups=2),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, 1, 2, 2),
        nn.ReLU(),
    ]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return State(model.to(device), list(torch.randn(24, 32, 3, size, size, device=device)))


def pitfall(state: State) -> Iterator[Tensor]:
    torch.backends.cudnn.benchmark = False
    for images in state.images:
        loss = state.model(images).square().mean()  # expect: cudnn-benchmark-mismatch
        loss.backward()
        state.model.zero_grad()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    torch.backends.cudnn.benchmark = True
    for images in state.images:
        loss = state.model(images).square().mean()
        loss.backward()
        state.model.zero_grad()
        yield loss.detach()
