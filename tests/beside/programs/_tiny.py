"""A tiny training, and a digest of what it came to: weights, losses, and the states of all random generators."""

import hashlib
import os
import random

import numpy

random.seed(0)
numpy.random.seed(0)
os.register_at_fork(after_in_child=lambda: random.seed(0))  # Python seeds it from the system there


def begin(seed=0):
    """A model with its optimizer, and the data of its steps."""
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    return model, torch.optim.Adam(model.parameters(), 0.01)


def step(model, optimizer):
    import torch

    optimizer.zero_grad()
    inputs = torch.randn(4, 8) * (1 + random.random()) + float(numpy.random.rand())
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(steps=60, seed=0):
    """Enough steps for all of a recording by default. Returns the model and its optimizer."""
    model, optimizer = begin(seed)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def digest_of(*values):
    import torch

    sums = hashlib.sha256()
    for value in values:
        parts = [*value.state_dict().values()] if isinstance(value, torch.nn.Module) else value
        for one in parts if isinstance(parts, (list, tuple)) else [parts]:
            is_tensor = isinstance(one, torch.Tensor)
            sums.update(repr(one.detach().tolist() if is_tensor else one).encode())
    return sums.hexdigest()[:16]


def digest(*values):
    import torch

    print("values", digest_of(*values))
    print("torch", digest_of(torch.get_rng_state()))
    print("numpy", digest_of(numpy.random.get_state()[1].tobytes(), numpy.random.get_state()[2]))
    print("random", digest_of(random.getstate()), flush=True)
