# kind: vision, L-BFGS
"""Style optimisation of an image with L-BFGS and a closure."""
import torch
from torch import nn

torch.manual_seed(0)
features = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 48, 3, padding=1, stride=2), nn.ReLU()).requires_grad_(False)
style, content = torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64)


def gram(x):
    f = x.flatten(2)
    return f @ f.transpose(1, 2) / f.numel()


with torch.no_grad():
    want_style, want_content = gram(features(style)), features(content)
image = content.clone().requires_grad_()
opt = torch.optim.LBFGS([image], lr=0.5, max_iter=4)


def closure():
    opt.zero_grad()
    f = features(image)
    loss = 1e4 * (gram(f) - want_style).square().sum() + (f - want_content).square().mean()
    loss.backward()
    return loss


for i in range(20):
    last = opt.step(closure)
print(last.item())
