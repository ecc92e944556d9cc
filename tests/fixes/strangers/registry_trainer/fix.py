"""Topics of short documents: bags of hashed words, models and optimizers by their names in a registry."""
from collections import defaultdict

import torch
import torch.nn as nn

REGISTRY = defaultdict(dict)


def register(kind, name):
    def wrap(thing):
        REGISTRY[kind][name] = thing
        return thing
    return wrap


@register("model", "bag")
class BagOfWords(nn.Module):
    def __init__(self, buckets, dim, topics):
        super().__init__()
        self.bag = nn.EmbeddingBag(buckets, dim, mode="mean", sparse=True)
        self.top = nn.Sequential(nn.ReLU(), nn.Linear(dim, topics))

    def forward(self, words, offsets):
        return self.top(self.bag(words, offsets))


@register("optimizer", "adagrad")
def adagrad(params, lr):
    return torch.optim.Adagrad(params, lr=lr)


class Trainer:
    def __init__(self, model, optimizer, lr, **sizes):
        self.sizes = sizes
        self.model = REGISTRY["model"][model](**sizes)
        self.optimizer = REGISTRY["optimizer"][optimizer](self.model.parameters(), lr)
        self.criterion = nn.CrossEntropyLoss()
        self.history = []

    def batches(self, count, documents=64, words=12):
        offsets = torch.arange(0, documents * words, words)
        for _ in range(count):
            ids = torch.randint(self.sizes["buckets"], (documents * words,))
            yield ids, offsets, ids[::words] % self.sizes["topics"]

    def fit(self, steps):
        for words, offsets, topics in self.batches(steps):
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(words, offsets), topics)
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())
        return self


torch.manual_seed(11)
trainer = Trainer("bag", "adagrad", 0.05, buckets=120_000, dim=24, topics=8).fit(120)
print("first %.4f last %.4f" % (trainer.history[0], trainer.history[-1]))
