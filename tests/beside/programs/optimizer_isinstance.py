"""Schedulers and wrappers check the optimizer's class, its step's signature and its pickled form."""
import inspect
import pickle

import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (0, 6, 20, 59):
        print(type(optimizer) is torch.optim.Adam, inspect.signature(optimizer.step), optimizer.step.__name__)
        print(hasattr(optimizer.step, "__wrapped__"), inspect.signature(torch.optim.Adam.step), repr(optimizer)[:30])
        print(type(pickle.loads(pickle.dumps(optimizer))).__name__, inspect.getsource(torch.optim.Adam.step)[:30])
        print(inspect.signature(torch.Tensor.backward), inspect.signature(torch.nn.Module.__call__))
        print(inspect.signature(torch.utils.data.DataLoader.__iter__), torch.utils.data.DataLoader.__iter__.__qualname__)
digest(model)
