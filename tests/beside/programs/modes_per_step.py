"""Modes are entered and left anew within each step."""
from _tiny import begin, digest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Functions(TorchFunctionMode):
    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        Functions.count += 1
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        Operators.count += 1
        return function(*args, **(kwargs or {}))


model, optimizer = begin()
for _ in range(60):
    optimizer.zero_grad()
    with Functions():
        loss = model(torch.randn(4, 8)).pow(2).mean()
    with Operators():
        loss.backward()
    optimizer.step()
    print(Functions.count, Operators.count)
digest(model)
