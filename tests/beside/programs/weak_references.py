"""Callbacks of weak references to batches, losses and graphs tell in which order they die."""
import weakref

import torch
from _tiny import begin, digest

died = []
model, optimizer = begin()
for number in range(60):
    optimizer.zero_grad()
    inputs = torch.randn(4, 8)
    hidden = model[0](inputs)
    loss = model[3](model[2](hidden)).pow(2).mean()
    for name in ("inputs", "hidden", "loss"):
        weakref.finalize(locals()[name], died.append, (number, name))
    loss.backward()
    optimizer.step()
    print(number, died)
    died.clear()
del inputs, hidden, loss
print(died)
digest(model)
