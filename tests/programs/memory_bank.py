# kind: inference
"""Collect the embeddings of a data set into one tensor."""

import argparse

import torch
from torch import nn


class Bank:
    def __init__(self, dim):
        self.embeddings = torch.empty(0, dim)

    def add(self, new):
        self.embeddings = torch.cat((self.embeddings, new), dim=0)  # expect: growing-concatenation


@torch.inference_mode()
def collect(encoder, batches, dim):
    bank = Bank(dim)
    for batch in batches:
        bank.add(encoder(batch))
    return bank.embeddings


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=384)
    options = parser.parse_args()
    torch.manual_seed(7)
    encoder = nn.Sequential(nn.Linear(48, options.dim), nn.Tanh()).eval()
    batches = [torch.randn(600, 48) for _ in range(100)]
    found = collect(encoder, batches, options.dim)
    print("collected", tuple(found.shape), "norm", found.norm().item())


if __name__ == "__main__":
    main()
