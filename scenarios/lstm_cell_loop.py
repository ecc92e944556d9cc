"""Calling nn.LSTMCell for each time step in a Python loop runs a dozen small operations per step of the sequence.

Tutorials explain the cell, so people write the loop over time by hand. ``nn.LSTM`` with the same weights takes the
whole sequence in one call. It multiplies all inputs with their weights at once and needs no Python in between.

Source: PyTorch documentation, torch.nn.LSTMCell (the loop of its example) and torch.nn.LSTM.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("unrolled-recurrence",)


@dataclass(frozen=True)
class State:
    device: str
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    batches = [(torch.randn(16, 100, 32, device=device), torch.randn(16, 1, device=device)) for _ in range(30)]
    return State(device, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    torch.manual_seed(1)
    cell = nn.LSTMCell(32, 64).to(state.device)
    head = nn.Linear(64, 1).to(state.device)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    for x, y in state.batches:
        h = c = torch.zeros(x.shape[0], 64, device=x.device)
        outputs = []
        for x_t in x.unbind(1):
            h, c = cell(x_t, (h, c))  # expect: unrolled-recurrence
            outputs.append(head(h))
        loss = nn.functional.mse_loss(torch.stack(outputs, dim=1).mean(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    torch.manual_seed(1)  # the layer draws its weights as the cell does
    lstm = nn.LSTM(32, 64, batch_first=True).to(state.device)
    head = nn.Linear(64, 1).to(state.device)
    optimizer = torch.optim.SGD([*lstm.parameters(), *head.parameters()], lr=0.01)
    for x, y in state.batches:
        states, _ = lstm(x)
        loss = nn.functional.mse_loss(head(states).mean(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()
