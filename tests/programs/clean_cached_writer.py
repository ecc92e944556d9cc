# kind: generation
# expect: no opportunities
"""A decoder that keeps the keys and values of what it has written, and scores the last token alone."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, past):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keys, values, filled = past
        keys[:, :, filled : filled + length] = k
        values[:, :, filled : filled + length] = v
        upto = filled + length
        mixed = F.scaled_dot_product_attention(q, keys[:, :, :upto], values[:, :, :upto], is_causal=length > 1)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Decoder(nn.Module):
    def __init__(self, words=1000, width=128, heads=4, layers=3, longest=256):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.attentions = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def room(self, batch, longest):
        sizes = [(batch, one.heads, longest, one.qkv.in_features // one.heads) for one in self.attentions]
        return [(torch.empty(size), torch.empty(size)) for size in sizes]

    def forward(self, new, cache, filled):
        hidden = self.words(new) + self.places(torch.arange(filled, filled + new.shape[1]))
        for attention, mlp, (keys, values) in zip(self.attentions, self.mlps, cache):
            hidden = hidden + attention(hidden, (keys, values, filled))
            hidden = hidden + mlp(hidden)
        return self.head(self.norm(hidden[:, -1]))


torch.manual_seed(9)
decoder = Decoder().eval()
with torch.inference_mode():
    for question in torch.randint(1000, (3, 4, 40)):
        cache, filled, new, answer = decoder.room(4, 128), 0, question, []
        while filled < 90:
            scores = decoder(new, cache, filled)
            filled += new.shape[1]
            new = scores.argmax(-1, keepdim=True)
            answer.append(new)
        print(torch.cat(answer, 1)[0, :8].tolist())
