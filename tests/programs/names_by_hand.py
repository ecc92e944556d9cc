# kind: training
"""A model of names, letter by letter, without modules and with updates by hand."""

import random

import torch
from torch.nn import functional

random.seed(1)
generator = torch.Generator().manual_seed(7)
letters = ".abcdefghijklmnopqrstuvwxyz"
names = ["".join(random.choices(letters[1:], k=random.randint(3, 9))) for _ in range(400)]
BEFORE = 6

contexts, following = [], []
for name in names:
    context = [0] * BEFORE
    for letter in name + ".":
        contexts.append(context)
        following.append(letters.index(letter))
        context = [*context[1:], letters.index(letter)]
inputs, targets = torch.tensor(contexts), torch.tensor(following)

embedding = torch.randn((27, 16), generator=generator)
w1 = torch.randn((16 * BEFORE, 400), generator=generator) * 0.1
b1 = torch.zeros(400)
w2 = torch.randn((400, 27), generator=generator) * 0.05
b2 = torch.zeros(27)
parameters = [embedding, w1, b1, w2, b2]
for parameter in parameters:
    parameter.requires_grad_()

curve = []
for step in range(120):
    batch = torch.randint(0, len(inputs), (256,), generator=generator)
    hidden = torch.tanh(embedding[inputs[batch]].flatten(1) @ w1 + b1)
    loss = functional.cross_entropy(hidden @ w2 + b2, targets[batch])
    for parameter in parameters:
        parameter.grad = None
    loss.backward()
    rate = 0.1 if step < 80 else 0.01
    for parameter in parameters:
        parameter.data -= rate * parameter.grad
    curve.append(loss.log10())  # expect: retained-graph

print(torch.stack(curve).view(-1, 20).mean(1).tolist())
