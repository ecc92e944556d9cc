# kind: mixture of experts
"""Mixture of experts with dense gating: every expert sees every token."""
import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.up, self.down = nn.Linear(d, h), nn.Linear(h, d)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class DenseMoE(nn.Module):
    def __init__(self, d=32, h=32, n=32):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList([Expert(d, h) for _ in range(n)])

    def forward(self, x):
        w = self.gate(x).softmax(-1)
        outs = torch.stack([e(x) for e in self.experts], dim=1)  # expect: looped-modules
        return (w.unsqueeze(-1) * outs).sum(1)


torch.manual_seed(0)
layer1, layer2 = DenseMoE(), DenseMoE()
head = nn.Linear(32, 4)
params = [*layer1.parameters(), *layer2.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, lr=1e-3, fused=True)
for _ in range(30):
    x, y = torch.randn(64, 32), torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy(head(layer2(x + layer1(x))), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
