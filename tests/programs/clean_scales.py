# kind: image classification
"""Blocks of convolutions of one shape, of which each takes what the one before made of its part."""
import torch
from torch import nn


class Scales(nn.Module):
    def __init__(self, width=16, scale=6):
        super().__init__()
        self.scale = scale
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(scale - 1))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(scale - 1))

    def forward(self, x):
        parts = x.chunk(self.scale, 1)
        outs = []
        for i in range(self.scale - 1):
            h = parts[i] if i == 0 else outs[-1] + parts[i]
            h = torch.relu(self.norms[i](self.convs[i](h)))
            outs.append(h)
        outs.append(parts[-1])
        return torch.cat(outs, 1)


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 96, 3, 2, 1), Scales(), Scales(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10)
)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(30):
    x, y = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
