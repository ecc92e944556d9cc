"""Forward, backward, step and loader raise now and then; the program catches that and goes on."""
import torch
from _tiny import begin, digest

model, optimizer = begin()
fail = {"forward": False, "backward": False, "step": False}


def failing(name):
    def hook(*arguments):
        if fail[name]:
            fail[name] = False
            raise RuntimeError(name)

    return hook


model[0].register_forward_hook(failing("forward"))
model[0].weight.register_hook(failing("backward"))
optimizer.register_step_pre_hook(failing("step"))
failures = []
for number in range(80):
    if number % 3 == 0:
        fail[("forward", "backward", "step")[number // 3 % 3]] = True
    try:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
    except RuntimeError as error:
        failures.append((number, str(error)))
print(failures)
digest(model)
