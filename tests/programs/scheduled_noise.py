# kind: compiled
"""Scheduled noise; the compiled function gets the step number as a Python float."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))


@torch.compile(backend="aot_eager", dynamic=False)  # expect: recompilation
def noisy_loss(x, y, sigma):
    return ((net(x + sigma * torch.ones_like(x)) - y) ** 2).mean()


opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(24):
    x, y = torch.randn(128, 64), torch.randn(128, 64)
    loss = noisy_loss(x, y, 1.0 - step / 24)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
