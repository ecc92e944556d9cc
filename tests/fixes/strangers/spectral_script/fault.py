#!/usr/bin/env python
# Spectral regularisation of a small recommender (numbers for the report).
import torch
from torch import nn
from torch.linalg import svd


def effective_rank(weight):
    _, spectrum, _ = svd(weight, full_matrices=True)  # expect: unread-factors
    share = spectrum / spectrum.sum()
    return torch.exp(-(share * share.log()).sum())


def report(nets):
    for name, net in nets.items():
        ranks = [float(effective_rank(layer.weight.detach())) for layer in net if isinstance(layer, nn.Linear)]
        print(name, *("%.3f" % rank for rank in ranks))


if __name__ == "__main__":
    torch.manual_seed(8)
    nets = {
        "wide": nn.Sequential(nn.Linear(96, 320), nn.Tanh(), nn.Linear(320, 16)),
        "deep": nn.Sequential(nn.Linear(96, 160), nn.Tanh(), nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, 16)),
    }
    optimizers = {name: torch.optim.SGD(net.parameters(), lr=1e-2) for name, net in nets.items()}
    for step in range(40):
        x = torch.randn(64, 96)
        for name, net in nets.items():
            penalty = sum(effective_rank(layer.weight.detach()) for layer in net if isinstance(layer, nn.Linear))
            loss = (net(x) - x[:, :16]).pow(2).mean() * (1 + 0.01 * penalty)
            optimizers[name].zero_grad()
            loss.backward()
            optimizers[name].step()
    report(nets)
