"""DistributedDataParallel looks for unused parameters in each step of a model that uses all of them.

``find_unused_parameters=True`` is the usual answer to an error about parameters that took no part in the loss, and it
stays when the model has long changed. After each forward pass the whole graph is searched, and another all-reduce tells
all processes which parameters were used. The averaged gradients are the same without it.

It runs in two processes; rank 0 is recorded.

Source: PyTorch documentation, torch.nn.parallel.DistributedDataParallel, find_unused_parameters; the warning of
``reducer.cpp`` about it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

triggers = ("unused-parameter-search",)
processes = 2


@dataclass(frozen=True)
class State:
    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(40) for layer in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(32, 1)).to(device)
    batches = [(torch.randn(16, 32, device=device), torch.randn(16, 1, device=device)) for _ in range(48)]
    return State(model, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    model = DistributedDataParallel(state.model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in state.batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)  # expect: unused-parameter-search
        loss.backward()
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
