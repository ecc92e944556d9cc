"""Tensor.backward and autograd.backward are replaced by functions that count."""
import torch
from _tiny import begin, digest, step

counts = {"tensor": 0, "autograd": 0}
tensor_backward, autograd_backward = torch.Tensor.backward, torch.autograd.backward


def of_tensor(self, *args, **kwargs):
    counts["tensor"] += 1
    return tensor_backward(self, *args, **kwargs)


def of_autograd(*args, **kwargs):
    counts["autograd"] += 1
    return autograd_backward(*args, **kwargs)


torch.Tensor.backward = of_tensor
torch.autograd.backward = of_autograd
model, optimizer = begin()
for _ in range(60):
    step(model, optimizer)
    print(counts)
print(torch.Tensor.backward is of_tensor, torch.autograd.backward is of_autograd)
digest(model)
