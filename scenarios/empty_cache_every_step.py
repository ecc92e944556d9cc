"""Emptying the GPU's memory cache in every training step makes the next step ask the driver for all of it again.

People add ``torch.cuda.empty_cache()`` against out-of-memory errors. It frees memory that PyTorch keeps but does not
use, so that other programs can have it; PyTorch itself would have reused it anyway. The driver takes about a hundred
microseconds per block, and before freeing one it waits until the GPU has finished its work.

On a CPU the call does nothing.

Source: PyTorch documentation, CUDA semantics, "Memory management", and torch.cuda.empty_cache, the note.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("allocator-flush-in-step",)
effect = "time on a GPU"


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    """On a GPU twelve wide layers, whose activations are many large blocks."""
    torch.manual_seed(0)
    width, layers, rows = (2048, 12, 8192) if device == "cuda" else (256, 3, 128)
    body = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))]
    model = nn.Sequential(*body).to(device)
    if device == "cuda":
        model = model.bfloat16()
    kind = next(model.parameters()).dtype
    batches = [torch.randn(rows, width, device=device, dtype=kind)] * 24
    return State(model, torch.optim.SGD(model.parameters(), lr=1e-3, fused=True), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        loss = state.model(batch).square().mean()
        loss.backward()
        state.optimizer.step()
        torch.cuda.empty_cache()  # expect: allocator-flush-in-step
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        loss = state.model(batch).square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
