"""Module.__call__ and a layer's forward are replaced by functions that count."""
import torch
from _tiny import begin, digest, step

count = 0
call = torch.nn.Module.__call__


def counted(self, *args, **kwargs):
    global count
    count += 1
    return call(self, *args, **kwargs)


torch.nn.Module.__call__ = counted
model, optimizer = begin()
forward = model[0].forward
model[0].forward = lambda inputs: forward(inputs) * 1
for _ in range(60):
    step(model, optimizer)
    print(count)
print(torch.nn.Module.__call__ is counted)
digest(model)
