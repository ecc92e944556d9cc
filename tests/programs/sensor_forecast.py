# kind: time series
"""Forecast sensor readings that arrive as NumPy arrays."""

import numpy as np
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, window, horizon):
        super().__init__()
        self.mix = nn.Linear(window, 900)
        self.mid = nn.Linear(900, 900)
        self.out = nn.Linear(900, horizon)

    def forward(self, past):
        return self.out(torch.relu(self.mid(torch.relu(self.mix(past)))))


def windows(series, window, horizon):
    view = np.lib.stride_tricks.sliding_window_view(series, window + horizon)
    return view[:, :window], view[:, window:]


def main():
    torch.manual_seed(0)
    readings = np.cumsum(np.random.default_rng(3).normal(size=6000))
    readings = (readings - readings.mean()) / readings.std()
    past, future = windows(readings, 96, 12)
    model = Forecaster(96, 12).double()
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for i in range(24):
        rows = slice(200 * i, 200 * i + 400)
        x, y = torch.tensor(past[rows]), torch.tensor(future[rows])  # expect: float64-compute
        forecast = model(x)
        loss = (forecast - y).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("mean absolute error", loss.item())


if __name__ == "__main__":
    main()
