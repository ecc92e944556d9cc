"""Which functions of torch are not torch's own, before, within and after the recorded steps."""
import inspect
import sys

import torch
from _tiny import begin, digest, step

OWNERS = (torch, torch.nn.Module, torch.Tensor, torch.optim.Optimizer, torch.optim.Adam, torch.autograd, torch.utils.data.DataLoader, torch.nn.functional)


def foreign():
    names = []
    for owner in OWNERS:
        for name, value in sorted(vars(owner).items()):
            home = getattr(inspect.unwrap(value) if callable(value) else value, "__module__", None)
            if isinstance(home, str) and home.startswith("profkit"):
                names.append(f"{owner.__name__}.{name}")
    return names


model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (0, 4, 6, 20, 59):
        print(number, foreign(), type(model).__mro__, type(optimizer).__mro__, sorted(vars(optimizer.step)))
        hooks = torch.nn.modules.module
        print({name: len(value) for name, value in vars(hooks).items() if name.startswith("_global") and hasattr(value, "__len__")})
        print(len(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks), len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks))
digest(model)
