# kind: GAN
"""Colours grey pictures: a network paints, a patch critic says whether it looks real, and both learn by turns."""

import torch
from torch import nn


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2))


class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(block(1, 16), block(16, 32))
        self.up = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()
        )

    def forward(self, grey):
        return self.up(self.down(grey))


class PatchCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 48, 4, 2, 1), nn.LeakyReLU(0.2), block(48, 96), block(96, 192))
        self.verdict = nn.Conv2d(192, 1, 4, 1, 1)

    def forward(self, grey, colour):
        return self.verdict(self.body(torch.cat((grey, colour), 1)))


class Colouring:
    def __init__(self):
        self.painter, self.critic = Painter(), PatchCritic()
        self.adversarial, self.pixelwise = nn.BCEWithLogitsLoss(), nn.L1Loss()
        self.opt_painter = torch.optim.Adam(self.painter.parameters(), 2e-4, (0.5, 0.999), fused=True)
        self.opt_critic = torch.optim.Adam(self.critic.parameters(), 2e-4, (0.5, 0.999), fused=True)

    def judge(self, grey, colour, real):
        verdict = self.critic(grey, colour)
        return self.adversarial(verdict, torch.full_like(verdict, float(real)))

    def step(self, grey, colour):
        painted = self.painter(grey)

        self.opt_critic.zero_grad()
        critic_loss = (self.judge(grey, colour, True) + self.judge(grey, painted.detach(), False)) / 2
        critic_loss.backward()
        self.opt_critic.step()

        self.opt_painter.zero_grad()
        painter_loss = self.judge(grey, painted, True) + 100 * self.pixelwise(painted, colour)
        painter_loss.backward()  # expect: unused-gradients
        self.opt_painter.step()
        return painter_loss.detach(), critic_loss.detach()


torch.manual_seed(5)
colouring = Colouring()
for number in range(16):
    colour = torch.rand(4, 3, 48, 48) * 2 - 1
    losses = colouring.step(colour.mean(1, keepdim=True), colour)
print("painter", losses[0].item(), "critic", losses[1].item())
