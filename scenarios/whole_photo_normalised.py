"""Normalising whole photos before a crop of them is taken.

Transforms are written in the order in which people think of them: read, normalise, crop. But whatever works on each
pixel by itself gives the same if the crop comes first, and then works only on the pixels that are used.

Source: torchvision documentation, "Getting started with transforms v2" (performance considerations: crop and resize
early, on uint8); pytorch/vision, references/classification/presets.py, where the crop comes before the normalisation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("mostly-discarded-result",)
SIDE, CROP = 512, slice(192, 320)


@dataclass(frozen=True)
class State:
    mean: Tensor
    deviation: Tensor
    model: nn.Module
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225], device=device).view(3, 1, 1)
    layers = nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    model = nn.Sequential(*layers).to(device).eval().requires_grad_(False)
    return State(mean, deviation, model, [torch.rand(4, 3, SIDE, SIDE, device=device) for _ in range(24)])


def pitfall(state: State) -> Iterator[Tensor]:
    for photos in state.batches:
        normalised = (photos - state.mean) / state.deviation  # expect: mostly-discarded-result
        yield state.model(normalised[:, :, CROP, CROP])


def fix(state: State) -> Iterator[Tensor]:
    for photos in state.batches:
        cropped = photos[:, :, CROP, CROP]
        yield state.model((cropped - state.mean) / state.deviation)
