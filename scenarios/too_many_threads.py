"""Each operator is split over sixteen threads, on a machine that gives the program fewer CPUs.

The number was right for the machine that the program was written on. In a container with a quota, on a smaller node or
beside other jobs, the threads take turns on fewer CPUs, and each of a step's many small operators waits until its last
thread has run.

Source: PyTorch documentation, CPU threading and TorchScript inference, "Tuning the number of threads": avoid
oversubscription, more threads than CPU cores.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("thread-oversubscription",)

STEPS = 40


@dataclass(frozen=True)
class State:
    device: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Tensor


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(*(block(256) for _ in range(8))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    return State(device, model, optimizer, torch.randn(STEPS, 256, 256).to(device))


def train_step(state: State, batch: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = (state.model(batch) - batch).square().mean()
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    torch.set_num_threads(16)  # expect: thread-oversubscription
    for batch in state.batches:
        yield train_step(state, batch)


def fix(state: State) -> Iterator[Tensor]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, cpus // 2))  # two CPUs are often one core
    for batch in state.batches:
        yield train_step(state, batch)
