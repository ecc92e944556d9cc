"""The corpus is tokenised by the job itself, in each epoch again."""

import torch
from model import make, train

TEXT = [" ".join(str(word * number % 977) for word in range(40)) for number in range(20_000)]


def tokenize(text):
    return [sum(map(ord, word)) % 97 for word in text.split()]


model, optimizer = make()
for _ in range(12):
    rows = [tokenize(text) for text in TEXT]
    data = torch.tensor(rows[:2560], dtype=torch.float32).repeat(1, 2)[:, :64]
    train(model, optimizer, data.split(128))
