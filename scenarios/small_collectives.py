"""DistributedDataParallel sends gradients in buckets of 10 kB, each of which costs the latency of a message.

People lower ``bucket_cap_mb`` in the hope of more overlap, or to save the memory of the buckets. But each bucket is a
separate message through all processes. By default the same gradients go in one or two.

It runs in two processes; rank 0 is recorded.

Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020, 3.2.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

triggers = ("small-collectives",)
processes = 2


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 1)).to(device)
    batches = [(torch.randn(64, 64, device=device), torch.randn(64, 1, device=device)) for _ in range(48)]
    return State(model, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    model = DistributedDataParallel(state.model, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()  # expect: small-collectives
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
