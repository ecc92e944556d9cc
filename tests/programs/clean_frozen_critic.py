# kind: GAN
# expect: no opportunities
"""Colours pictures against a critic that is frozen while the painter learns."""

import torch
from torch import nn

torch.manual_seed(6)
painter = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 3, 3, padding=1),
).to(memory_format=torch.channels_last)
critic = nn.Sequential(
    nn.Conv2d(4, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 4)
).to(memory_format=torch.channels_last)
loss_of = nn.BCEWithLogitsLoss()
opt_painter = torch.optim.Adam(painter.parameters(), 2e-4, fused=True)
opt_critic = torch.optim.Adam(critic.parameters(), 2e-4, fused=True)


def judged(grey, colour, real):
    verdict = critic(torch.cat((grey, colour), 1))
    return loss_of(verdict, torch.full_like(verdict, float(real)))


for picture in torch.rand(16, 4, 3, 32, 32):
    colour = picture.to(memory_format=torch.channels_last)
    grey = colour.mean(1, keepdim=True)

    critic.requires_grad_(True)
    painted = painter(grey)
    opt_critic.zero_grad()
    (judged(grey, colour, True) + judged(grey, painted.detach(), False)).backward()
    opt_critic.step()

    critic.requires_grad_(False)
    opt_painter.zero_grad()
    loss = judged(grey, painted, True) + 50 * (painted - colour).abs().mean()
    loss.backward()
    opt_painter.step()

print("loss", loss.item())
