"""Hooks on modules, all modules, tensors, gradients and nodes are counted in each step."""
import torch
from _tiny import begin, digest

counts = {}


def counting(name):
    def hook(*arguments):
        counts[name] = counts.get(name, 0) + 1

    return hook


modules = torch.nn.modules.module
handles = [
    modules.register_module_forward_pre_hook(counting("global forward pre")),
    modules.register_module_forward_hook(counting("global forward")),
    modules.register_module_full_backward_pre_hook(counting("global backward pre")),
    modules.register_module_full_backward_hook(counting("global backward")),
    modules.register_module_parameter_registration_hook(counting("registration")),
]
model, optimizer = begin()
for layer in model:
    layer.register_forward_pre_hook(counting("forward pre"))
    layer.register_forward_hook(counting("forward"))
    layer.register_full_backward_pre_hook(counting("backward pre"))
    layer.register_full_backward_hook(counting("backward"))
    for weight in layer.parameters():
        weight.register_hook(counting("gradient"))
        weight.register_post_accumulate_grad_hook(counting("accumulated"))
for number in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.register_hook(counting("loss"))
    loss.grad_fn.register_hook(counting("node"))
    loss.grad_fn.register_prehook(counting("node pre"))
    loss.backward()
    optimizer.step()
    print(number, sorted(counts.items()))
for handle in handles:
    handle.remove()
print([len(value) for name, value in vars(modules).items() if name.startswith("_global_") and hasattr(value, "__len__")])
digest(model)
