from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Options:
    width: int = 256
    rate: float = 1e-2
    steps: int = 120


@dataclass
class Meters:
    seen: dict[str, list] = field(default_factory=lambda: defaultdict(list))

    def log(self, **values):
        for name, value in values.items():
            self.seen[name].append(value.detach() if torch.is_tensor(value) else value)  # expect: retained-graph

    def last(self, name: str, n: int = 20) -> float:
        return sum(float(v) for v in self.seen[name][-n:]) / n


def fit(options: Options) -> Meters:
    torch.manual_seed(3)
    meters = Meters()
    net = nn.Sequential(nn.Linear(64, options.width), nn.Tanh(), nn.Linear(options.width, options.width), nn.Tanh(), nn.Linear(options.width, 4))
    sgd = torch.optim.SGD(net.parameters(), lr=options.rate)
    for step in range(options.steps):
        x = torch.randn(256, 64)
        loss = nn.functional.mse_loss(net(x), x[:, :4].sin())
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        meters.log(loss=loss, rate=options.rate, seen=len(x))
    return meters


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=Options.steps)
    found = fit(Options(steps=parser.parse_args().steps))
    print(f"loss {found.last('loss'):.5f} rate {found.last('rate'):.3f}")
