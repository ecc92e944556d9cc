# kind: generation
"""Trains a small character model on recipes, then lets it write some."""

import torch
from torch import nn
from torch.nn import functional as F

RECIPES = "take two eggs, a cup of flour and a pinch of salt; stir, rest it for an hour and bake until golden.\n" * 60
LETTERS = sorted(set(RECIPES))
CODE = {letter: number for number, letter in enumerate(LETTERS)}


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class Writer(nn.Module):
    def __init__(self, width=128, heads=4, layers=3, longest=256):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(longest, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(LETTERS))

    def forward(self, text, last_only=False):
        hidden = self.letters(text) + self.places(torch.arange(text.shape[1]))
        hidden = self.norm(self.layers(hidden))
        return self.head(hidden[:, -1:] if last_only else hidden)


@torch.inference_mode()
def write(model, prompt, letters, temperature=0.8, best=8):
    text = torch.tensor([[CODE[letter] for letter in prompt]])
    while text.shape[1] < letters:
        scores = model(text, last_only=True)[0, -1] / temperature  # expect: missing-kv-cache
        scores, among = scores.topk(best)
        chosen = among[torch.multinomial(scores.softmax(0), 1)]
        text = torch.cat((text, chosen[None]), 1)
    return "".join(LETTERS[code] for code in text[0].tolist())


torch.manual_seed(8)
model = Writer().eval()
for beginning in ("take two eggs, a cup of flour and a pinch of salt; stir, rest", "bake until golden, then take two"):
    print(write(model, beginning, 110))
