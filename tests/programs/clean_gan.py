# kind: GAN
"""A generative adversarial network: two models, two optimizers, two updates in each step."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

torch.manual_seed(4)
BATCH = 512
generator = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 400), nn.Tanh())
critic = nn.Sequential(nn.Linear(400, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
real_label, fake_label = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
pictures = torch.rand(20, BATCH, 400) * 2 - 1

for real in pictures:
    fake = generator(torch.randn(BATCH, 16))

    opt_c.zero_grad()
    loss_c = bce(critic(real), real_label) + bce(critic(fake.detach()), fake_label)
    loss_c.backward()
    opt_c.step()

    opt_g.zero_grad()
    loss_g = bce(critic(fake), real_label)
    loss_g.backward(inputs=list(generator.parameters()))
    opt_g.step()

print(f"critic {loss_c.item():.4f} generator {loss_g.item():.4f}")
