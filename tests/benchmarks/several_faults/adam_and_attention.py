"""A small transformer with attention by hand, trained by an optimizer that loops over its parameters."""

import torch
from torch import nn

triggers = ("unfused-attention", "single-tensor-optimizer")


class Block(nn.Module):
    def __init__(self, size, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm, self.qkv, self.out = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            weights = (q @ k.transpose(-2, -1) / (size // self.heads) ** 0.5).softmax(dim=-1)
            mixed = weights @ v
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, size))


def setup(device):
    torch.manual_seed(0)
    return [torch.randn(4, 192, 64, device=device) for _ in range(40)]


def _train(state, fused):
    torch.manual_seed(1)
    model = nn.Sequential(*(Block(64, 4, fused) for _ in range(6)), nn.Linear(64, 1))
    settings = {"fused": True} if fused else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **settings)
    for x in state:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def pitfall(state):
    yield from _train(state, fused=False)


def fix(state):
    yield from _train(state, fused=True)
