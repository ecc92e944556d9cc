"""The default dtype and device change in the middle of training."""
import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    if number in (6, 30):
        torch.set_default_dtype(torch.float64 if number == 6 else torch.float32)
        torch.set_default_device("cpu" if number == 6 else None)
        model = model.to(torch.get_default_dtype())
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loss = step(model, optimizer)
    print(loss.dtype, torch.get_default_dtype(), torch.get_default_device())
digest(model)
