"""Hooks of one and of all optimizers print their arguments, keywords too."""
import sys

import torch
from _tiny import begin, digest

shown = []


def showing(name):
    def hook(optimizer, args, kwargs):
        shown.append((name, type(optimizer).__name__, args, sorted(kwargs)))

    return hook


optim = sys.modules["torch.optim.optimizer"]
optim.register_optimizer_step_pre_hook(showing("global pre"))
optim.register_optimizer_step_post_hook(showing("global post"))
model, optimizer = begin()
optimizer.register_step_pre_hook(showing("pre"))
optimizer.register_step_post_hook(showing("post"))
optimizer.register_state_dict_pre_hook(lambda one: shown.append("state"))
for number in range(60):
    shown.clear()
    optimizer.zero_grad()
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step(closure=None) if number % 2 else optimizer.step()
    print(number, shown)
    shown.clear()
    optimizer.state_dict()
    print(shown)
digest(model)
