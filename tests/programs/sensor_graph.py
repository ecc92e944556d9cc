# kind: graph network
"""Forecast of a sensor grid: a learned adjacency matrix mixes the readings of each sample."""
import torch
from torch import nn


class Mixing(nn.Module):
    def __init__(self, sensors, width):
        super().__init__()
        self.adjacency = nn.Parameter(torch.eye(sensors) + 0.01 * torch.randn(sensors, sensors))
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        mixing = torch.stack([self.adjacency for _ in range(len(x))])  # expect: materialised-broadcast
        return torch.relu(self.linear(torch.bmm(mixing, x)))


torch.manual_seed(0)
model = nn.Sequential(Mixing(256, 8), Mixing(256, 8), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
readings = torch.randn(2000, 256, 8)
for step in range(30):
    start = 60 * step
    x, y = readings[start : start + 64], readings[start + 1 : start + 65, :, :1]
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
