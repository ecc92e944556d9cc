# kind: gradient accumulation
"""Accumulate gradients over micro-batches; a progress line for each."""
import sys

import torch
from torch import nn


class Progress:
    def __init__(self, it, total):
        self.it, self.total, self.post = it, total, ""

    def set_postfix(self, **kw):
        self.post = " ".join(f"{k}={v:.4f}" for k, v in kw.items())

    def __iter__(self):
        for i, x in enumerate(self.it):
            yield x
            sys.stderr.write(f"\r{i + 1}/{self.total} {self.post}")
        sys.stderr.write("\n")


torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(8, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 3))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
accum = 4
data = [(torch.randn(32, 8, 200), torch.randint(0, 3, (32,))) for _ in range(64)]
bar = Progress(data, len(data))
losses = []
for i, (x, y) in enumerate(bar):
    loss = nn.functional.cross_entropy(model(x), y) / accum
    loss.backward()
    losses.append(loss * accum)  # expect: retained-graph
    if (i + 1) % accum == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        bar.set_postfix(loss=losses[-1].item())
print(sum(l.item() for l in losses) / len(losses))
