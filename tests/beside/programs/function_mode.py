"""A TorchFunctionMode counts the calls of each step."""
import torch
from _tiny import begin, digest, step
from torch.overrides import TorchFunctionMode


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))


model, optimizer = begin()
with Counting() as counting:
    for number in range(60):
        counting.names.clear()
        step(model, optimizer)
        print(number, len(counting.names), hash(tuple(counting.names)) and sorted(set(counting.names)))
print(torch.overrides._get_current_function_mode_stack())
digest(model)
