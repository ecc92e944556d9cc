# kind: gradient accumulation
"""Gradient accumulation: four small batches for each update."""

import argparse

import torch
from torch import nn


def update(model, optimizer, micro_batches):
    optimizer.zero_grad()
    total = torch.zeros(())
    for text, label in micro_batches:
        loss = nn.functional.cross_entropy(model(text), label) / len(micro_batches)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=15)
    parser.add_argument("--accumulate", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(300, 700), nn.GELU(), nn.Linear(700, 700), nn.GELU(), nn.Linear(700, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = [(torch.randn(256, 300), torch.randint(5, (256,))) for _ in range(args.accumulate)]
    for _ in range(args.updates):
        total = update(model, optimizer, data)
    print("loss after", args.updates, "updates:", total.item())


main()
