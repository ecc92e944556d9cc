# kind: neural ODE
"""Latent dynamics: Runge-Kutta 4 through a network, trained end to end."""
import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 128), nn.Tanh(), nn.Linear(128, d))

    def forward(self, t, y):
        return self.net(y)


def rk4(f, y, t0, t1, steps):
    h = (t1 - t0) / steps
    path = [y]
    for i in range(steps):
        t = t0 + i * h
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(y)
    return torch.stack(path)


torch.manual_seed(0)
field = Field(8)
opt = torch.optim.Adam(field.parameters(), lr=1e-3, fused=True)
target = torch.randn(21, 512, 8).cumsum(0) * 0.1
for it in range(20):
    pred = rk4(field, target[0], 0.0, 1.0, 20)
    loss = (pred - target).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
