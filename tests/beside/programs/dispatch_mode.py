"""A TorchDispatchMode counts the operators of each step."""
from _tiny import begin, digest, step
from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


model, optimizer = begin()
with Counting() as counting:
    for number in range(60):
        counting.names.clear()
        step(model, optimizer)
        print(number, len(counting.names), sorted(set(counting.names)))
digest(model)
