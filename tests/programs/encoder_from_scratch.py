# kind: transformer
"""A one-block causal language model with attention as in the tutorials."""

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import nn


class Head(nn.Module):
    def __init__(self, width, size, context):
        super().__init__()
        self.n_head = size
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width)
        self.register_buffer("tril", torch.tril(torch.ones(context, context)) == 0)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, self.n_head, -1).transpose(1, 2) for z in (q, k, v))
        att = torch.matmul(q, k.transpose(2, 3)) * (c // self.n_head) ** -0.5  # expect: unfused-attention
        att = att.masked_fill(self.tril[:t, :t], float("-inf"))
        att = F.softmax(att, dim=-1)
        out = torch.matmul(att, v)
        return self.merge(out.transpose(1, 2).reshape(b, t, c))


class LanguageModel(nn.Module):
    def __init__(self, vocab=96, width=64, context=512):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Parameter(torch.zeros(context, width))
        self.attention = Head(width, 4, context)
        self.logits = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.tokens(ids) + self.places
        return self.logits(x + self.attention(x))


torch.manual_seed(8)
lm = LanguageModel()
optimizer = torch.optim.AdamW(lm.parameters(), lr=3e-4, fused=True)
corpus = torch.randint(96, (16, 4, 513))
for text in corpus:
    logits = lm(text[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("final loss", loss.item())
