# kind: GAN
"""Wasserstein GAN with gradient penalty, five critic updates for each of the generator."""
import torch
from torch import autograd, nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 100))
D = nn.Sequential(nn.Linear(100, 256), nn.LeakyReLU(0.2), nn.Linear(256, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
og = torch.optim.Adam(G.parameters(), 1e-4, (0.0, 0.9), fused=True)
od = torch.optim.Adam(D.parameters(), 1e-4, (0.0, 0.9), fused=True)


def penalty(real, fake):
    eps = torch.rand(len(real), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_()
    (g,) = autograd.grad(D(mix).sum(), mix, create_graph=True)
    return ((g.norm(dim=1) - 1) ** 2).mean()


for it in range(12):
    for _ in range(5):
        real = torch.randn(256, 100)
        with torch.no_grad():
            fake = G(torch.randn(256, 32))
        d_loss = D(fake).mean() - D(real).mean() + 10 * penalty(real, fake)
        od.zero_grad(set_to_none=True)
        d_loss.backward()
        od.step()
    g_loss = -D(G(torch.randn(256, 32))).mean()
    og.zero_grad(set_to_none=True)
    g_loss.backward(inputs=list(G.parameters()))
    og.step()
print(d_loss.item(), g_loss.item())
