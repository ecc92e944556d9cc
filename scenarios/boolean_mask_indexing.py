"""Picking the valid elements with a boolean mask makes a list of indices, and gathers and scatters along it.

``error[valid]`` first finds the true elements of the mask and writes their 64-bit indices to memory, then reads them
back; the backward pass reads them again. ``torch.where`` makes a single pass over all elements. On a GPU the program
also waits until the device has counted the elements.

Source: PyTorch documentation, torch.nonzero, the note on synchronisation; PyTorch tutorials, Performance Tuning Guide,
"Avoid unnecessary CPU-GPU synchronization".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("data-dependent-shape",)


@dataclass(frozen=True)
class State:
    model: nn.Module
    images: list[tuple[Tensor, Tensor, Tensor]]


def setup(device: str) -> State:
    """Images, and the depth maps to predict from them, with holes as a sensor leaves them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 1, 1)).to(device)
    images = []
    for _ in range(24):
        depth = torch.rand(4, 1, 192, 256, device=device)
        valid = torch.rand(4, 1, 192, 256, device=device) < 0.7
        images.append((torch.rand(4, 3, 192, 256, device=device), depth, valid))
    return State(model, images)


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-3)
    for image, depth, valid in state.images:
        optimizer.zero_grad()
        error = (state.model(image) - depth).abs()
        loss = error[valid].mean()  # expect: data-dependent-shape
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-3)
    for image, depth, valid in state.images:
        optimizer.zero_grad()
        error = (state.model(image) - depth).abs()
        loss = torch.where(valid, error, 0).sum() / valid.sum()
        loss.backward()
        optimizer.step()
        yield loss.detach()
