"""A table of right and wrong guesses is made in each step, and every 25th is printed.

The table is counted pixel by pixel in Python, which takes longer than the step. Below the condition of the message it
is only made when somebody reads it.

Source: github.com/ViTAE-Transformer/RSP, pull request 20: metrics of each batch of a change detection, computed on the
host, slow its training down; github.com/ludwig-ai/ludwig, issue 1740.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

triggers = ("rarely-read-result",)

STEPS = 48


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    images: Tensor
    truth: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1)]
    model = nn.Sequential(*layers).to(device)
    images = torch.randn(2, 3, 64, 64, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    return State(model, optimizer, images, (images[:, 0] > 0).long())


def table_of(truth: Tensor, guess: Tensor) -> NDArray[np.int64]:
    table = np.zeros((2, 2), dtype=np.int64)
    for t, g in zip(truth.flatten().tolist(), guess.flatten().tolist(), strict=True):
        table[t, g] += 1
    return table


def pitfall(state: State) -> Iterator[Tensor]:
    for step in range(1, STEPS + 1):
        logits = state.model(state.images)
        loss = nn.functional.cross_entropy(logits, state.truth)
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        table = table_of(state.truth, logits.argmax(1))  # expect: rarely-read-result
        if step % 25 == 0:
            logging.info("step %d: %s", step, table)
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for step in range(1, STEPS + 1):
        logits = state.model(state.images)
        loss = nn.functional.cross_entropy(logits, state.truth)
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        if step % 25 == 0:
            table = table_of(state.truth, logits.argmax(1))
            logging.info("step %d: %s", step, table)
        yield loss.detach()
