"""A network in double precision by way of NumPy, saved after every step."""

import io

import numpy as np
import torch
from torch import nn

triggers = ("checkpoint-in-step", "float64-compute")


def setup(device):
    generator = np.random.default_rng(0)
    return [generator.standard_normal((256, 256)) for _ in range(40)]


def _model(dtype):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256)).to(dtype)


def _train(state, dtype, every):
    model = _model(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number, batch in enumerate(state):
        x = torch.from_numpy(batch).to(dtype)
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        if number % every == 0:
            torch.save(model.state_dict(), io.BytesIO())
        yield loss.detach()


def pitfall(state):
    yield from _train(state, torch.float64, every=1)


def fix(state):
    yield from _train(state, torch.float32, every=len(state))
