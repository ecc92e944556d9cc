"""Pitch from short recordings: windows, autocorrelation, a small regressor. Run me: python fault.py [steps]"""
import math
import sys

import numpy as np
import torch
from torch import nn

RATE, SIZE = 8000, 512


def kaiser(size: int, beta: float = 8.6) -> np.ndarray:
    def bessel(x: float) -> float:
        total, term = 1.0, 1.0
        for k in range(1, 24):
            term *= (x / (2 * k)) ** 2
            total += term
        return total

    ends = [2.0 * i / (size - 1) - 1.0 for i in range(size)]
    return np.array([bessel(beta * math.sqrt(max(0.0, 1 - r * r))) / bessel(beta) for r in ends], dtype=np.float32)


def tones(rng: np.random.Generator, count: int) -> tuple[list[np.ndarray], np.ndarray]:
    pitch = rng.uniform(80, 400, count)
    time = np.arange(SIZE) / RATE
    return [np.sin(2 * np.pi * f * time + rng.uniform(0, 6)).astype(np.float32) for f in pitch], pitch / 400


def features(waves: list[np.ndarray]) -> torch.Tensor:
    rows = []
    for wave in waves:
        wave = wave * kaiser(SIZE)  # expect: repeated-call
        power = np.abs(np.fft.rfft(wave)) ** 2
        rows.append(np.fft.irfft(power)[: SIZE // 2])
    return torch.from_numpy(np.stack(rows)).float()


def main(steps: int) -> None:
    rng = np.random.default_rng(4)
    torch.manual_seed(4)
    net = nn.Sequential(nn.LayerNorm(SIZE // 2), nn.Linear(SIZE // 2, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(steps):
        waves, pitch = tones(rng, 16)
        loss = (net(features(waves)).squeeze(1) - torch.from_numpy(pitch).float()).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"{step + 1:3d} {400 * loss.item():8.3f} Hz")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
