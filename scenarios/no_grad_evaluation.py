"""A control: an evaluation without gradients after each round of training, whose result is used, is no fault.

``torch.no_grad()`` keeps no graph. ``torch.inference_mode()`` goes further and also skips what only a later backward
pass would need, so its results must not enter one. ``model.eval()`` is something else: it switches dropout and batch
normalisation, but still records the graph. Here training stops early once the validation loss stops falling, so each
result is used.

Both variants are right and compute the same, so nothing is reported in either.

Source: PyTorch documentation, "Autograd mechanics", "Locally disabling gradient computation".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ()
effect = "nothing"

ROUNDS = 20
PATIENCE = 5


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]
    held_out: tuple[Tensor, Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    teacher = torch.randn(64, 1, device=device) / 8
    inputs = [torch.randn(256, 64, device=device) for _ in range(5)]
    batches = [(x, x @ teacher) for x in inputs]
    return State(model, optimizer, batches[:-1], batches[-1])


def train(state: State) -> None:
    state.model.train()
    for x, y in state.batches:
        state.optimizer.zero_grad()
        nn.functional.mse_loss(state.model(x), y).backward()
        state.optimizer.step()


def pitfall(state: State) -> Iterator[Tensor]:
    best, waited = float("inf"), 0
    for _ in range(ROUNDS):
        train(state)
        state.model.eval()
        x, y = state.held_out
        with torch.no_grad():
            loss = nn.functional.mse_loss(state.model(x), y)
        current = loss.item()
        best, waited = (current, 0) if current < best else (best, waited + 1)
        yield loss
        if waited == PATIENCE:
            break


def fix(state: State) -> Iterator[Tensor]:
    best, waited = float("inf"), 0
    for _ in range(ROUNDS):
        train(state)
        state.model.eval()
        x, y = state.held_out
        with torch.inference_mode():
            loss = nn.functional.mse_loss(state.model(x), y)
        current = loss.item()
        best, waited = (current, 0) if current < best else (best, waited + 1)
        yield loss
        if waited == PATIENCE:
            break
