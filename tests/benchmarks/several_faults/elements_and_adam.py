"""A deep regression whose penalty is summed element by element, trained parameter by parameter."""

import torch
from torch import nn

triggers = ("tensor-element-loop", "single-tensor-optimizer")


def setup(device):
    torch.manual_seed(0)
    return [(torch.randn(64, 32, device=device), torch.rand(400, device=device)) for _ in range(40)]


def _model():
    torch.manual_seed(1)
    layers = [layer for _ in range(30) for layer in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(32, 1))


def pitfall(state):
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for x, weights in state:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        score = torch.zeros(())
        for i in range(len(weights)):
            score = score + weights[i] * i
        yield loss.detach() + score


def fix(state):
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for x, weights in state:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        score = (weights * torch.arange(len(weights))).sum()
        yield loss.detach() + score
