"""Anomaly detection finds a NaN, and its warning names the forward line."""
# beside: mask 0x[0-9a-f]+
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    if number in (4, 6, 30):
        with torch.autograd.detect_anomaly():
            weight = torch.zeros(3, requires_grad=True)
            try:
                (weight.sqrt() * 0).sum().backward()
            except RuntimeError as error:
                print(number, error)
    step(model, optimizer)
print(torch.is_anomaly_enabled())
digest(model)
