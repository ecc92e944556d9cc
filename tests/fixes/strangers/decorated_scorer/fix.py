import functools
import time

import torch
from torch import nn


def timed(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        begun = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            inner.seconds += time.perf_counter() - begun

    inner.seconds = 0.0
    return inner


class Scorer(nn.Module):
    def __init__(self, size=384, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x.logsumexp(-1)


@timed
def score_all(model, batches):
    best = []
    for batch in batches:
        with torch.no_grad():
            scores = model(batch)  # expect: unused-autograd-graph
        best.append(int(scores.argmax()))
    return best


torch.manual_seed(5)
model = Scorer()
model.eval()
batches = [torch.randn(1024, 384) for _ in range(30)]
found = score_all(model, batches)
print(sum(found), found[:5])
