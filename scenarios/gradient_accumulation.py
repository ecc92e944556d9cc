"""A control: adding up the gradients of small batches gives those of the large batch, and is no fault.

A batch that does not fit into memory is processed in parts. Each part's loss is divided by their number, ``backward()``
adds to the existing gradients, and after the last part the optimizer steps and the gradients are cleared. Without the
division the gradient is several times too large. Layers that look at the whole batch, such as batch normalisation, see
only the parts.

Both variants are right and compute the same, so nothing is reported in either.

Source: PyTorch documentation, "Automatic Mixed Precision examples", "Gradient accumulation".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ()
effect = "nothing"

PARTS = 4


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = [(torch.randn(1024, 512, device=device), torch.randint(10, (1024,), device=device)) for _ in range(24)]
    return State(model, optimizer, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for x, y in state.batches:
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x), y)
        loss.backward()
        state.optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for x, y in state.batches:
        state.optimizer.zero_grad()
        total = torch.zeros((), device=x.device)
        for some_x, some_y in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
            loss = nn.functional.cross_entropy(state.model(some_x), some_y) / PARTS
            loss.backward()
            total += loss.detach()
        state.optimizer.step()
        yield total
