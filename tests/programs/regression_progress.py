# kind: training
import argparse

import torch
from torch import nn


class RunningMean:
    def __init__(self):
        self.value, self.n = 0.0, 0

    def update(self, v):
        self.n += 1
        self.value += (v - self.value) / self.n


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", type=int, default=30)
    p.add_argument("--width", type=int, default=512)
    return p.parse_args()


def train(args):
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(32, args.width), nn.Tanh(), nn.Linear(args.width, args.width), nn.Tanh())
    out = nn.Linear(args.width, 3)
    optim = torch.optim.SGD([*head.parameters(), *out.parameters()], lr=1e-2)
    inputs, targets = torch.randn(1024, 32), torch.randn(1024, 3)
    meter = RunningMean()
    for _ in range(args.iterations):
        optim.zero_grad(set_to_none=True)
        residual = nn.functional.smooth_l1_loss(out(head(inputs)), targets)
        residual.backward()
        optim.step()
        meter.update(residual.item())  # expect: host-sync-in-step
    return meter


if __name__ == "__main__":
    result = train(parse_args())
    print(f"{result.n} iterations, mean loss {result.value:.4f}")
