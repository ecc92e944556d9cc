"""Evaluating a model without switching autograd off records a graph that nobody will use.

``model.eval()`` sounds sufficient, but only changes dropout and batch norm. Each operation still saves what its
backward pass would need, and every activation stays in memory until the output is dropped. With
``torch.inference_mode()`` each activation is freed as soon as the next layer has read it.

Source: PyTorch tutorials, Performance Tuning Guide, "Disable gradient calculation for validation or inference".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unused-autograd-graph",)
effect = "memory"


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    blocks = [block for _ in range(12) for block in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]
    model = nn.Sequential(*blocks, nn.Linear(256, 10)).to(device).eval()
    return State(model, [torch.randn(2048, 256, device=device) for _ in range(16)])


def pitfall(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        scores = state.model(x)  # expect: unused-autograd-graph
        yield scores.detach().mean()


def fix(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        with torch.inference_mode():
            scores = state.model(x)
        yield scores.detach().mean()
