"""AdamW updates half a billion parameters in a dozen passes over memory, because nobody asked for the fused one.

On a GPU torch.optim updates lists of tensors by default: one operator after another passes over all parameters and
their state. `fused=True` reads and writes each of them once.

Source: https://pytorch.org/docs/stable/optim.html ("fused" is the fastest, "foreach" the default)
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

triggers = ("bandwidth-bound-optimizer",)
effect = "time on a GPU"
needs_gpu = True


def setup(device: str) -> nn.Sequential:
    torch.manual_seed(0)
    width, layers = (8192, 8) if device == "cuda" else (16, 2)
    return nn.Sequential(*(nn.Linear(width, width, device=device, bias=False) for _ in range(layers)))


def pitfall(state: nn.Sequential) -> Iterator[Tensor]:
    optimizer = torch.optim.AdamW(state.parameters(), lr=1e-4)
    for batch in batches(state):
        loss = backward(state, batch)
        optimizer.step()  # expect: bandwidth-bound-optimizer
        optimizer.zero_grad()
        yield loss


def fix(state: nn.Sequential) -> Iterator[Tensor]:
    optimizer = torch.optim.AdamW(state.parameters(), lr=1e-4, fused=True)
    for batch in batches(state):
        loss = backward(state, batch)
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def batches(model: nn.Sequential) -> list[Tensor]:
    weight = next(model.parameters())
    return [torch.ones(32, weight.shape[1], device=weight.device)] * 24


def backward(model: nn.Sequential, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch).square().mean()
    loss.backward()
    return loss.detach()
