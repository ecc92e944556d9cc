# kind: inference
"""Suggests the next word on a keyboard: a GRU reads what was typed, a head scores the vocabulary."""

import torch
from torch import nn


class NextWord(nn.Module):
    def __init__(self, vocabulary=6_000, width=128, hidden=256):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.read = nn.GRU(width, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.score = nn.Linear(hidden, vocabulary)

    def forward(self, typed):
        states, _ = self.read(self.embed(typed))
        return self.score(self.norm(states))  # expect: discarded-logits


def suggest(model, typed, count=3):
    """The likeliest words after each of the texts."""
    with torch.no_grad():
        scores = model(typed)
    return scores[:, -1, :].topk(count).indices


def main():
    torch.manual_seed(12)
    model = NextWord().eval()
    for request in range(24):
        typed = torch.randint(6_000, (8, 24))
        words = suggest(model, typed)
        if request % 10 == 0:
            print(request, words[0].tolist())


if __name__ == "__main__":
    main()
