"""The weights are given to functional_call, and updated by hand."""
import torch
from _tiny import digest

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
for _ in range(60):
    loss = torch.func.functional_call(model, weights, (torch.randn(4, 8),)).pow(2).mean()
    gradients = torch.autograd.grad(loss, list(weights.values()))
    with torch.no_grad():
        for weight, gradient in zip(weights.values(), gradients):
            weight -= 0.1 * gradient
digest(model, *weights.values())
