"""Twenty thousand steps of almost no work."""
import torch
from _tiny import digest

torch.manual_seed(0)
weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], 1e-4)
for _ in range(20_000):
    weight.grad = torch.ones(1)
    optimizer.step()
digest(weight)
