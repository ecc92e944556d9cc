# kind: RNN
"""LSTM tagger; sentences are padded in Python, batches are lists of arrays."""
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
corpus = [rng.normal(size=(rng.integers(20, 40), 32)).astype(np.float32) for _ in range(800)]


def pad(batch, length=40):
    return [np.pad(s, ((0, length - len(s)), (0, 0))) for s in batch]


def iterate(data, size):
    for i in range(0, len(data), size):
        chunk = data[i : i + size]
        yield torch.tensor(pad(chunk)), torch.tensor([len(s) for s in chunk])  # expect: slow-tensor-construction


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(64, 5)

    def forward(self, x):
        return self.tag(self.rnn(x)[0])


torch.manual_seed(0)
tagger = Tagger()
opt = torch.optim.Adam(tagger.parameters(), fused=True)
for epoch in range(2):
    for x, n in iterate(corpus, 40):
        y = torch.randint(0, 5, x.shape[:2]).masked_fill(torch.arange(40)[None] >= n[:, None], -100)
        loss = nn.functional.cross_entropy(tagger(x).transpose(1, 2), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
