"""A network is trained in full float32 on a processor that multiplies bfloat16 several times as fast.

Under ``torch.autocast`` the parameters stay float32 and the matrix products use bfloat16, which has the range of
float32 and fewer digits; the loss agrees to three of them. Processors without such instructions gain nothing and may
lose, so measure it where it is to run.

Source: PyTorch documentation, Automatic Mixed Precision package, and Performance Tuning Guide, "Use mixed precision".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("full-precision-matmul",)
needs_measuring = True


@dataclass(frozen=True)
class State:
    device: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    width, size = (4096, 4096) if device == "cuda" else (1024, 256)
    model = nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, fused=True)
    return State(device, model, optimizer, list(torch.randn(24, size, 512, device=device)))


def pitfall(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        prediction = state.model(batch)  # expect: full-precision-matmul
        loss = (prediction - 1).square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for batch in state.batches:
        state.optimizer.zero_grad()
        with torch.autocast(state.device, dtype=torch.bfloat16):
            prediction = state.model(batch)
        loss = (prediction.float() - 1).square().mean()
        loss.backward()
        state.optimizer.step()
        yield loss.detach()
