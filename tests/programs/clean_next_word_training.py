# kind: training
# expect: no opportunities
"""Trains a next-word model on all positions of its texts; the accuracy that is printed looks at the last one."""

import torch
from torch import nn

torch.manual_seed(13)
WORDS = 1500


class NextWord(nn.Module):
    def __init__(self, width=96, hidden=192):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.read = nn.LSTM(width, hidden, batch_first=True)
        self.score = nn.Linear(hidden, WORDS)

    def forward(self, text):
        return self.score(self.read(self.embed(text))[0])


model = NextWord()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
texts = torch.randint(WORDS, (16, 8, 33))
for batch in texts:
    scores = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    last = scores.detach()[:, -1].argmax(-1)
    right = (last == batch[:, -1]).float().mean()

print(f"loss {loss.item():.3f}, last words right {right.item():.2f}")
