"""Autograd's anomaly mode, switched on to find a NaN and never switched off, slows every step down.

While it is on, each operator of the forward pass stores Python's stack as text, and each gradient of the backward pass
is searched for NaN. The bug was found long ago, but the line stayed. The results are the same without it.

Source: PyTorch documentation, Automatic differentiation package, "Anomaly detection", and Performance Tuning Guide,
"Disable debugging APIs".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("debug-mode-on",)


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    blocks = [block for _ in range(10) for block in (nn.Linear(96, 96), nn.LayerNorm(96), nn.GELU())]
    model = nn.Sequential(*blocks, nn.Linear(96, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    labels = torch.randint(10, (24, 64), device=device)
    return State(model, optimizer, list(zip(torch.randn(24, 64, 96, device=device), labels, strict=True)))


def pitfall(state: State) -> Iterator[Tensor]:
    for x, y in state.batches:
        state.optimizer.zero_grad()
        with torch.autograd.set_detect_anomaly(True):  # expect: debug-mode-on
            loss = nn.functional.cross_entropy(state.model(x), y)
            loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for x, y in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
