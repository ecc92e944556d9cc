"""Learning-rate sweep over a bag of tiny embeddings."""
from functools import partial
from itertools import product

import torch
from torch import nn, optim


class Tagger(nn.Module):
    def __init__(self, words: int, tags: int, width: int = 128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.bigrams = nn.Embedding(words, width)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids):
        pairs = (ids + ids.roll(1, -1)) // 2
        return self.head(torch.cat([self.words(ids), self.bigrams(pairs)], -1))


def fit(make_optimizer, steps=60):
    torch.manual_seed(0)
    model = Tagger(20_000, 12)
    optimizer = make_optimizer(model.parameters())
    reset = partial(optimizer.zero_grad, set_to_none=False)
    criterion = nn.CrossEntropyLoss()
    for _ in range(steps):
        ids = torch.randint(20_000, (8, 16))
        reset()  # expect: zero-filled-gradients
        loss = criterion(model(ids).flatten(0, 1), (ids % 12).flatten())
        loss.backward()
        optimizer.step()
    return loss.item()


grid = {(lr, m): partial(optim.SGD, lr=lr, momentum=m) for lr, m in product((0.1, 0.3), (0.0,))}
results = {key: fit(build) for key, build in grid.items()}
for (lr, momentum), loss in sorted(results.items(), key=lambda item: item[1]):
    print(f"lr {lr:<4} momentum {momentum:<4} loss {loss:.5f}")
