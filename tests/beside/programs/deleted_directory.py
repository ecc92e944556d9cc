"""The working directory does not exist."""
# beside: start deleted
import os

import torch
from _tiny import digest

try:
    print(os.getcwd())
except FileNotFoundError as error:
    print(error)
torch.manual_seed(0)
weight = torch.zeros(8, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(60):
    optimizer.zero_grad()
    ((weight - torch.randn(8)) ** 2).sum().backward()
    optimizer.step()
digest(weight)
