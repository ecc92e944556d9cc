"""The small programs of `bench_budget`: each trains for some seconds, and recording it is dear in another way.

    python budget_programs.py KIND ROUNDS

KIND is one of `KINDS`. ROUNDS are steps, or scans of the data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from small_programs import models, training
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def model(name: str) -> Callable[[int], None]:
    """One of `small_programs`: short steps, few operators."""

    def run(rounds: int) -> None:
        step = next(training(one, batch) for found, one, batch in models() if found == name)
        for number in range(rounds):
            loss = step()
            if number % 100 == 0:
                print(f"step {number}: {loss.item():.4f}")

    return run


def calls(per_step: int) -> Callable[[int], None]:
    """About that many small operators in each step: half without gradients, a quarter with them, and a quarter in the
    backward pass."""

    def run(rounds: int) -> None:
        layer, state = nn.Linear(8, 8), torch.rand(8)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        for number in range(rounds):
            optimizer.zero_grad()
            for _ in range(per_step // 4):
                state = state * 0.9 + 0.1
            hidden = state
            for _ in range(per_step // 8):
                hidden = torch.tanh(hidden * 0.9)
            loss = layer(hidden).square().mean()
            loss.backward()
            optimizer.step()
            state = state.detach()
            print(f"step {number}: {loss.item():.4f}")

    return run


def loader(rounds: int) -> None:
    """Batches from two workers."""
    data = TensorDataset(torch.rand(4096, 256), torch.rand(4096, 1))
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.Adam(net.parameters())
    for number in range(rounds):
        for given, wanted in DataLoader(data, batch_size=64, shuffle=True, num_workers=2):
            optimizer.zero_grad()
            loss = (net(given) - wanted).square().mean()
            loss.backward()
            optimizer.step()
        print(f"scan {number}: {loss.item():.4f}")


def objects(rounds: int) -> None:
    """Millions of Python's objects beside the model: each walk through all of them takes a second."""
    table = [{"name": [index], "weight": (index, [index])} for index in range(1_500_000)]
    layer = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    for number in range(rounds):
        optimizer.zero_grad()
        loss = layer(torch.rand(512, 256)).square().mean() * len(table[number]["name"])
        loss.backward()
        optimizer.step()
        if number % 100 == 0:
            print(f"step {number}: {loss.item():.4f}")


def long_steps(rounds: int) -> None:
    """Steps of seconds, of few and large operators."""
    weight = torch.rand(1024, 1024, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    for number in range(rounds):
        optimizer.zero_grad()
        hidden: Tensor = torch.rand(1024, 1024)
        for _ in range(20):
            hidden = torch.tanh(hidden @ weight / 512)
        loss = hidden.square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {number}: {loss.item():.4f}")


KINDS: dict[str, Callable[[int], None]] = {
    "perceptron": model("perceptron"),
    "six_layers": model("six layers"),
    "calls_20k": calls(20_000),
    "calls_200k": calls(200_000),
    "loader": loader,
    "objects": objects,
    "long_steps": long_steps,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    KINDS[sys.argv[1]](int(sys.argv[2]))
