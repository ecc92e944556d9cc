"""Distances through tables that are written out, of numbers that are cast for each sum."""

import torch

triggers = ("dtype-round-trip", "materialised-broadcast")


def setup(device):
    torch.manual_seed(0)
    return [(torch.randn(300, 64, device=device), torch.randn(200, 64, device=device)) for _ in range(40)]


def pitfall(state):
    for points, centres in state:
        wide = points.unsqueeze(1).repeat(1, len(centres), 1)
        tall = centres.unsqueeze(0).repeat(len(points), 1, 1)
        distances = (wide - tall).square().sum(-1)
        weights = torch.exp(-distances / 64)
        for _ in range(8):
            weights = (weights.double() * 1.01).float()
        yield weights.sum()


def fix(state):
    for points, centres in state:
        distances = (points.unsqueeze(1) - centres.unsqueeze(0)).square().sum(-1)
        weights = torch.exp(-distances / 64)
        for _ in range(8):
            weights = weights * 1.01
        yield weights.sum()
