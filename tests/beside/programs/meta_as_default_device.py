"""The default device is meta for a while, so that new tensors have no data."""
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number % 10 == 3:
        with torch.device("meta"):
            large = torch.nn.Linear(10_000, 10_000)
            print(large.weight.device, torch.empty(3).device, large(torch.ones(2, 10_000)).shape)
digest(model)
