"""Features of windows gathered by concatenation in a loop, all of it in float64 as NumPy made it."""

import numpy as np
import torch
from torch import nn

triggers = ("growing-concatenation", "float64-compute")


def setup(device):
    generator = np.random.default_rng(0)
    signals = [generator.standard_normal((160, 256)) for _ in range(40)]
    weight = torch.from_numpy(generator.standard_normal((256, 256)) / 16)
    return device, signals, weight


def pitfall(state):
    device, signals, weight = state
    for signal in signals:
        windows = torch.from_numpy(signal).to(device)
        features = torch.empty(0, 256, dtype=windows.dtype)
        for window in windows.split(2):
            features = torch.cat([features, nn.functional.gelu(window.repeat(4, 1) @ weight)])
        yield features.mean()


def fix(state):
    device, signals, weight = state
    weight = weight.float()
    for signal in signals:
        windows = torch.from_numpy(signal).float().to(device)
        parts = []
        for window in windows.split(2):
            parts.append(nn.functional.gelu(window.repeat(4, 1) @ weight))
        yield torch.cat(parts).mean()
