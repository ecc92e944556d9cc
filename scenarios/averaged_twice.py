"""Gradients that DistributedDataParallel averages are averaged again by a loop that was there before it.

A program that averages its gradients by hand is wrapped in ``DistributedDataParallel``, but the loop over
``model.parameters()`` stays. All processes have the same averages after the backward pass, so adding them up and
dividing by the number of processes gives the same again.

It runs in two processes; rank 0 is recorded.

Source: PyTorch documentation, torch.nn.parallel.DistributedDataParallel: gradients are averaged during the backward
pass; PyTorch tutorial "Writing Distributed Applications with PyTorch", average_gradients.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

triggers = ("redundant-allreduce",)
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
    model = DistributedDataParallel(state.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        for p in model.parameters():
            distributed.all_reduce(p.grad)  # expect: redundant-allreduce
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
