"""The classes of PyTorch's profiler are replaced, by one that counts and one that refuses."""
import torch
from _tiny import begin, digest, step

made = []


class Counting(torch.autograd.profiler.record_function):
    def __init__(self, *arguments):
        made.append(arguments[0].partition("#")[0])
        super().__init__(*arguments)


def refuse(*arguments, **keywords):
    raise RuntimeError("nobody may profile")


model, optimizer = begin()
torch.profiler.record_function = torch.autograd.profiler.record_function = Counting
torch.profiler.profile = refuse
for _ in range(60):
    step(model, optimizer)
print(sorted(set(made)))
digest(model)
