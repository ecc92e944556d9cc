"""The step of an optimizer, and of its class, are replaced in the middle."""
import types

import torch
from _tiny import begin, digest, step

model, optimizer = begin()
counts = {"instance": 0, "class": 0}
of_class, of_instance = torch.optim.Adam.step, optimizer.step


def instance_step(self, *args, **kwargs):
    counts["instance"] += 1
    return of_instance(*args, **kwargs)


def class_step(self, *args, **kwargs):
    counts["class"] += 1
    return of_class(self, *args, **kwargs)


for number in range(60):
    if number == 6:
        optimizer.step = types.MethodType(instance_step, optimizer)
    if number == 20:
        del optimizer.step
        torch.optim.Adam.step = class_step
    if number == 40:
        torch.optim.Adam.step = of_class
    step(model, optimizer)
    print(counts, sorted(vars(optimizer)))
print(torch.optim.Adam.step is of_class)
digest(model)
