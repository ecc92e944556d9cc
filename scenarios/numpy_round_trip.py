"""The best rows are chosen with NumPy between two models on the GPU.

``scores.cpu()`` returns when the first model has finished everything in the queue. Then the host sorts, sends the
indices back, and launches the second model only now, on an idle GPU. ``topk`` chooses the same rows on the device, and
nobody waits.

Its recording, of an H200, holds one step: the one whose lines are marked.

Source: PyTorch tutorials, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

triggers = ("device-to-host-in-step",)
effect = "time on a GPU"
needs_gpu = True

STEPS = 24
KEPT = 32


@dataclass(frozen=True)
class State:
    device: str
    batches: list[Tensor]
    scorer: nn.Module
    model: nn.Module


def setup(device: str) -> State:
    torch.manual_seed(0)
    rows, width = (256, 64) if device == "cpu" else (16384, 1024)
    batches = [torch.randn(rows, width, device=device) for _ in range(3)]
    scorer = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)).to(device)
    layers = [layer for _ in range(12) for layer in (nn.Linear(width, width), nn.ReLU())]
    return State(device, batches, scorer, nn.Sequential(*layers).to(device))


@torch.no_grad()
def pitfall(state: State) -> Iterator[Tensor]:
    for number in range(STEPS):
        batch = state.batches[number % 3]
        scores = state.scorer(batch).flatten()
        order = np.argsort(-scores.cpu().numpy())  # expect: device-to-host-in-step
        best = batch[torch.from_numpy(order[:KEPT].copy()).to(state.device)]
        yield state.model(best).mean(0)


@torch.no_grad()
def fix(state: State) -> Iterator[Tensor]:
    for number in range(STEPS):
        batch = state.batches[number % 3]
        scores = state.scorer(batch).flatten()
        best = batch[scores.topk(KEPT).indices]
        yield state.model(best).mean(0)
