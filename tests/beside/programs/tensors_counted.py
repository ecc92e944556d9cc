"""The tensors that live are counted through the collector after each step."""
import gc

import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    print(number, sum(type(one) in (torch.Tensor, torch.nn.Parameter) for one in gc.get_objects()))
digest(model)
