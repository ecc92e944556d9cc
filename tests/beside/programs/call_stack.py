"""How deep the stack is and what it holds, at the top and in hooks."""
# beside: skip profile: what lies below is the harness's driver
import inspect
import sys

from _tiny import begin, digest, step

model, optimizer = begin()
depths = []


def hook(module, inputs, outputs):
    depths.append(len(inspect.stack(0)))


model[0].register_forward_hook(hook)
print(len(inspect.stack(0)), sys._getframe().f_back)
for number in range(60):
    step(model, optimizer)
print(depths)
digest(model)
