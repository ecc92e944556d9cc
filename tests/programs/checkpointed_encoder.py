# kind: transformer, activation checkpointing
"""Encoder with activation checkpointing; attention by hand."""
import math

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class SelfAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.dk = h, d // h
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d, d) for _ in range(4))

    def split(self, x):
        b, t, _ = x.shape
        return x.view(b, t, self.h, self.dk).permute(0, 2, 1, 3)

    def forward(self, x, mask=None):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.dk)  # expect: unfused-attention
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        p = scores.softmax(dim=-1)
        out = torch.matmul(p, v).permute(0, 2, 1, 3).contiguous()
        return self.w_o(out.view(x.shape))


class EncoderLayer(nn.Module):
    def __init__(self, d, h, ff):
        super().__init__()
        self.attn = SelfAttention(d, h)
        self.ff = nn.Sequential(nn.Linear(d, ff), nn.ReLU(), nn.Linear(ff, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, mask):
        x = self.n1(x + self.attn(x, mask))
        return self.n2(x + self.ff(x))


class Classifier(nn.Module):
    def __init__(self, vocab=1000, d=128, h=4, layers=3, classes=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([EncoderLayer(d, h, 2 * d) for _ in range(layers)])
        self.cls = nn.Linear(d, classes)

    def forward(self, ids, mask):
        x = self.emb(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, mask, use_reentrant=False)
        return self.cls(x.mean(1))


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
ids = torch.randint(0, 1000, (14, 4, 256))
mask = torch.ones(1, 1, 256, 256).tril()
labels = torch.randint(0, 4, (14, 4))
for x, y in zip(ids, labels):
    loss = nn.functional.cross_entropy(model(x, mask), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(loss.item())
