"""Gradients are averaged parameter by parameter after the backward pass, not in buckets while it runs.

Tutorials on data parallelism begin with a loop that calls ``all_reduce`` for each ``p.grad``. Each call waits for the
others, and all of them come when nothing is left to compute. ``DistributedDataParallel`` sends a bucket of gradients as
soon as it is full, while the backward pass goes on. Both average the same gradients.

It runs in two processes; rank 0 is recorded.

Source: PyTorch tutorial "Writing Distributed Applications with PyTorch", average_gradients; Li et al., PyTorch
Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020, 3.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

triggers = ("late-overlap",)
processes = 2


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(256, 1)).to(device)
    batches = [(torch.randn(256, 256, device=device), torch.randn(256, 1, device=device)) for _ in range(32)]
    return State(model, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=1e-3, fused=True)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), y)
        loss.backward()
        for p in state.model.parameters():
            distributed.all_reduce(p.grad)  # expect: late-overlap
            p.grad /= 2
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    model = DistributedDataParallel(state.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.detach()
