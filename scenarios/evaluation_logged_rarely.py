"""The model is evaluated in each epoch, and every twentieth result is logged.

If all data is in one batch, as in training a graph network, an evaluation is a forward pass as large as the training's.
Put it under the same condition as the log message, and it only runs when somebody reads the result.

Source: pytorch/examples, gcn/main.py, whose two evaluations come with every epoch.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

triggers = ("repeated-evaluation",)

EPOCHS = 24


@dataclass(frozen=True)
class State:
    model: nn.Module
    seen: Tensor
    unseen: Tensor
    labels: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 8)).to(device)
    seen, unseen = torch.randn(2, 4096, 64, device=device)
    return State(model, seen, unseen, torch.randint(0, 8, (4096,), device=device))


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    model.eval()
    return (model(x).argmax(dim=1) == labels).float().mean().item()


def train(state: State, optimizer: torch.optim.Optimizer) -> Tensor:
    state.model.train()
    loss = cross_entropy(state.model(state.seen), state.labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=0.1)
    for epoch in range(1, EPOCHS + 1):
        loss = train(state, optimizer)
        accuracy = evaluate(state.model, state.unseen, state.labels)  # expect: repeated-evaluation
        if epoch % 20 == 0:
            logging.info("epoch %d: accuracy %.3f", epoch, accuracy)
        yield loss


def fix(state: State) -> Iterator[Tensor]:
    optimizer = torch.optim.SGD(state.model.parameters(), lr=0.1)
    for epoch in range(1, EPOCHS + 1):
        loss = train(state, optimizer)
        if epoch % 20 == 0:
            accuracy = evaluate(state.model, state.unseen, state.labels)
            logging.info("epoch %d: accuracy %.3f", epoch, accuracy)
        yield loss
