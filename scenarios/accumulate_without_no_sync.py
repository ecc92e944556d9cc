"""Accumulating gradients under DistributedDataParallel averages them over all processes after every small batch.

``loss.backward()`` sends each bucket of gradients as soon as it is full. That is right if an optimizer step follows.
With eight small batches per optimizer step, seven of the eight averages are wasted. Under ``model.no_sync()`` gradients
are only added up; the last backward pass, outside of it, averages the sums.

It runs in two processes; rank 0 is recorded.

Source: PyTorch documentation, torch.nn.parallel.DistributedDataParallel, no_sync.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

triggers = ("redundant-allreduce",)
processes = 2


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(512, 512), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(512, 1)).to(device)
    batches = [(torch.randn(16, 512, device=device), torch.randn(16, 1, device=device)) for _ in range(8)]
    return State(model, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    model = DistributedDataParallel(state.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(24):
        optimizer.zero_grad()
        for x, y in state.batches:
            loss = nn.functional.mse_loss(model(x), y) / len(state.batches)
            loss.backward()  # expect: redundant-allreduce
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    model = DistributedDataParallel(state.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(24):
        optimizer.zero_grad()
        with model.no_sync():
            for x, y in state.batches[:-1]:
                loss = nn.functional.mse_loss(model(x), y) / len(state.batches)
                loss.backward()
        x, y = state.batches[-1]
        loss = nn.functional.mse_loss(model(x), y) / len(state.batches)
        loss.backward()
        optimizer.step()
        yield loss.detach()
