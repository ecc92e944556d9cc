"""Each step goes through the losses of all steps before it."""

import statistics

from model import make, some_batches

model, optimizer = make()
losses = []
for batch in some_batches(3000):
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    average = statistics.mean(losses)
