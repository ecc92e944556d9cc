# kind: transformer
"""A small causal transformer with the attention that PyTorch provides."""

import torch
from torch import nn
from torch.nn import functional as fn


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_qkv, self.to_out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        q, k, v = self.to_qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = fn.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.to_out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


def train(steps, batch=4, length=128, vocab=100, dim=128):
    torch.manual_seed(6)
    model = nn.Sequential(nn.Embedding(vocab, dim), *[Layer(dim, 4) for _ in range(3)], nn.Linear(dim, vocab))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(vocab, (steps, batch, length + 1))
    for chunk in tokens:
        loss = fn.cross_entropy(model(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


print("loss", train(steps=24))
