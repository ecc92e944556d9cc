"""Histograms of all weights are written in each step.

Each histogram sorts a whole weight into bins on the host and writes the counts as text. Every 25th step shows the same
development, at a 25th of the price.

Source: github.com/allenai/allennlp, pull request 3949, and github.com/wandb/wandb, pull request 309, on what histograms
of weights cost in each step; github.com/deepmodeling/deepmd-kit, pull request 996: logging every step took two thirds
of the time.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import torch
from torch import Tensor, nn

triggers = ("logged-every-step",)

STEPS = 48


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batch: Tensor
    log: IO[str]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    return State(model, optimizer, torch.randn(64, 256, device=device), tempfile.TemporaryFile("w"))


def write_histogram(log: IO[str], name: str, values: Tensor) -> None:
    counts, _ = np.histogram(values.detach().cpu().numpy(), bins=100)
    log.write(json.dumps({name: counts.tolist()}))


def train(state: State) -> Tensor:
    loss = nn.functional.mse_loss(state.model(state.batch), state.batch)
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        loss = train(state)
        for name, weight in state.model.named_parameters():
            write_histogram(state.log, name, weight)  # expect: logged-every-step
        yield loss


def fix(state: State) -> Iterator[Tensor]:
    for step in range(STEPS):
        loss = train(state)
        if step % 25 == 0:
            for name, weight in state.model.named_parameters():
                write_histogram(state.log, name, weight)
        yield loss
