"""An optimizer of the program's own, with a strict __setattr__, a closure and a step that returns values."""
import torch
from _tiny import begin, digest


class Strict(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.sealed = True

    def __setattr__(self, name, value):
        if vars(self).get("sealed"):
            raise AttributeError(f"nobody may set {name}")
        super().__setattr__(name, value)

    @torch.no_grad()
    def step(self, closure=None, *, scale=1.0):
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                weight -= scale * group["lr"] * weight.grad
        return loss.detach(), scale


model, _ = begin()
optimizer = Strict(model.parameters())


def closure():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    return loss


for number in range(60):
    print(optimizer.step(closure, scale=0.5), sorted(vars(optimizer)))
digest(model)
