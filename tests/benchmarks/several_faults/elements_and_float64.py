"""Scores of a linear model in float64, of which a Python loop keeps a running maximum."""

import numpy as np
import torch

triggers = ("tensor-element-loop", "float64-compute")


def setup(device):
    generator = np.random.default_rng(0)
    batches = [generator.standard_normal((1500, 512)) for _ in range(40)]
    return device, batches, generator.standard_normal((512, 512)) / 22


def pitfall(state):
    device, batches, weight = state
    weight = torch.from_numpy(weight).to(device)
    for batch in batches:
        scores = (torch.from_numpy(batch).to(device) @ weight).amax(dim=1)
        best = scores[0]
        for i in range(len(scores)):
            best = torch.maximum(best, scores[i])
        yield best


def fix(state):
    device, batches, weight = state
    weight = torch.from_numpy(weight).float().to(device)
    for batch in batches:
        scores = (torch.from_numpy(batch).float().to(device) @ weight).amax(dim=1)
        yield scores.amax()
