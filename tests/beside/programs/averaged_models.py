"""Averaged models, deep copies of models as targets, and EMA updates by hand."""
import copy

import torch
from _tiny import begin, digest, step

model, optimizer = begin()
averaged = torch.optim.swa_utils.AveragedModel(model)
target = copy.deepcopy(model)
for number in range(60):
    step(model, optimizer)
    averaged.update_parameters(model)
    with torch.no_grad():
        for one, other in zip(target.parameters(), model.parameters()):
            one.lerp_(other, 0.1)
digest(model, averaged.module, target)
