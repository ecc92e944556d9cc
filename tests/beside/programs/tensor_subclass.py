"""A subclass of Tensor notes each function that it passes through."""
import torch
from _tiny import begin, digest


class Noting(torch.Tensor):
    names = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.names.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, types, args, kwargs or {})


model, optimizer = begin()
for number in range(60):
    Noting.names.clear()
    optimizer.zero_grad()
    inputs = torch.randn(4, 8).as_subclass(Noting)
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(number, type(loss).__name__, len(Noting.names), sorted(set(Noting.names)))
digest(model)
