# kind: training
"""Fit a regression network; the mean loss is read once, at the end."""

import torch
from torch import nn

torch.manual_seed(0)
mlp = nn.Sequential(nn.Linear(50, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1))
opt = torch.optim.SGD(mlp.parameters(), lr=0.01)
inputs = torch.randn(30, 1024, 50)
targets = inputs.mean(dim=2, keepdim=True)

running = torch.zeros(())
for x, y in zip(inputs, targets, strict=True):
    opt.zero_grad()
    loss = nn.functional.mse_loss(mlp(x), y)
    loss.backward()
    opt.step()
    running += loss.detach()

print(f"mean loss {running.item() / len(inputs):.5f}")
