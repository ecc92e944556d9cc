"""An optimizer that loops over its parameters, and the garbage collected by hand after each step."""

import gc

import torch
from torch import nn

triggers = ("garbage-collection-in-step", "single-tensor-optimizer")


def setup(device):
    torch.manual_seed(0)
    return [torch.randn(256, 192, device=device) for _ in range(40)]


def _train(state, collects, **settings):
    torch.manual_seed(1)
    layers = [layer for _ in range(20) for layer in (nn.Linear(192, 192), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(192, 1))
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    for x in state:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if collects:
            gc.collect()
        yield loss.detach()


def pitfall(state):
    yield from _train(state, collects=True, foreach=False)


def fix(state):
    yield from _train(state, collects=False, fused=True)
