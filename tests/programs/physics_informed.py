# kind: physics-informed network
"""Physics-informed network for u'' = -u."""
import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)  # expect: debug-mode-on


class PINN(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        layers = [nn.Linear(1, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, x):
    u = model(x)
    du = derivative(u, x)
    return derivative(du, x) + u


torch.manual_seed(0)
pinn = PINN()
opt = torch.optim.Adam(pinn.parameters(), lr=1e-3)
x0 = torch.zeros(1, 1, requires_grad=True)
for it in range(45):
    x = (torch.rand(500, 1) * 6.28).requires_grad_()
    physics = residual(pinn, x).square().mean()
    u0 = pinn(x0)
    boundary = (u0 - 0).square().sum() + (derivative(u0, x0) - 1).square().sum()
    loss = physics + boundary
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(it, loss.item())
