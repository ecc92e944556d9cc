"""Gradients by vmap, grad, jvp and jacrev, without backward or optimizer."""
import torch
from _tiny import digest
from torch.func import functional_call, grad, grad_and_value, jacrev, jvp, vmap

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
weights = {name: value.detach() for name, value in model.named_parameters()}


def loss_of(weights, inputs):
    return functional_call(model, weights, (inputs,)).pow(2).mean()


for _ in range(60):
    batch = torch.randn(4, 8)
    each = vmap(grad(loss_of), in_dims=(None, 0))(weights, batch)
    gradients, loss = grad_and_value(loss_of)(weights, batch)
    _, tangent = jvp(lambda inputs: loss_of(weights, inputs), (batch,), (torch.ones_like(batch),))
    jacobian = jacrev(loss_of)(weights, batch)
    weights = {name: value - 0.1 * gradients[name] for name, value in weights.items()}
digest(*weights.values(), *each.values(), loss, tangent, *jacobian.values())
