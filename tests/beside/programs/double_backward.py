"""The gradient's norm is part of the loss, and graphs are kept."""
import torch
from _tiny import begin, digest

model, optimizer = begin()
for _ in range(60):
    optimizer.zero_grad()
    inputs = torch.randn(4, 8, requires_grad=True)
    output = model(inputs).pow(2).mean()
    (gradient,) = torch.autograd.grad(output, inputs, create_graph=True)
    loss = output + gradient.pow(2).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
digest(model, loss)
