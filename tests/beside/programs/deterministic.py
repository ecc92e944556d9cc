"""Deterministic algorithms are demanded, and an uninitialised tensor is filled."""
import torch
from _tiny import begin, digest, step

torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    print(torch.empty(2).isnan().all().item(), torch.are_deterministic_algorithms_enabled())
digest(model)
