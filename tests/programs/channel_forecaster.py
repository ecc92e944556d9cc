# kind: forecasting, a layer per channel
"""Sensors of a plant: each channel is forecast by a linear layer of its own."""
import torch
from torch import nn


class ChannelForecaster(nn.Module):
    def __init__(self, look_back=48, horizon=12, channels=21):
        super().__init__()
        self.channels, self.horizon = channels, horizon
        self.layers = nn.ModuleList(nn.Linear(look_back, horizon) for _ in range(channels))

    def forward(self, x):  # batch, channels, time
        level = x.mean(2, keepdim=True)
        out = torch.zeros(x.size(0), self.channels, self.horizon)
        for i in range(self.channels):
            window = x[:, i, :] - level[:, i, :]
            out[:, i, :] = self.layers[i](window)  # expect: looped-modules
        return out + level


torch.manual_seed(0)
net = ChannelForecaster()
opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
series = torch.randn(21, 3000).cumsum(1)
for step in range(60):
    at = torch.randint(0, 2900, (32, 1)) + torch.arange(60)
    x, y = series[:, at].transpose(0, 1).split((48, 12), dim=2)
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
