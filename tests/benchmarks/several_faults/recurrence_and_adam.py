"""Cell by cell through a sequence, trained by an optimizer that loops over its parameters."""

import torch
from torch import nn

triggers = ("unrolled-recurrence", "single-tensor-optimizer")


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(32, 64), _head()

    def forward(self, x):
        hidden = torch.zeros(len(x), 64)
        memory = torch.zeros(len(x), 64)
        for t in range(x.shape[1]):
            hidden, memory = self.cell(x[:, t], (hidden, memory))
        return self.head(hidden)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(32, 64, batch_first=True), _head()

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


def _head():
    layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 1))


def setup(device):
    torch.manual_seed(0)
    return [torch.randn(16, 40, 32, device=device) for _ in range(40)]


def _train(state, model, **settings):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **settings)
    for x in state:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def pitfall(state):
    yield from _train(state, Cells(), foreach=False)


def fix(state):
    yield from _train(state, Whole(), fused=True)
