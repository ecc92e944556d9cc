"""The number of PyTorch's threads is changed in the middle."""
import torch
from _tiny import begin, digest, step

print(torch.get_num_threads(), torch.get_num_interop_threads())
torch.set_num_interop_threads(1)
model, optimizer = begin()
for number in range(60):
    if number in (2, 6, 30):
        torch.set_num_threads(1 + number % 4)
    step(model, optimizer)
    print(torch.get_num_threads())
digest(model)
