"""Functions are scripted and traced in the middle of training."""
import torch
from _tiny import begin, digest, step


def scale(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor
    for _ in range(3):
        total = total * 1.5
    return total


model, optimizer = begin()
results = []
for number in range(60):
    step(model, optimizer)
    if number in (0, 4, 5, 6, 7, 30):
        scripted = torch.jit.script(scale)
        traced = torch.jit.trace(model.eval(), torch.ones(4, 8), check_trace=False)
        model.train()
        results += [scripted(torch.ones(2)), traced(torch.ones(4, 8))]
print(str(scripted.graph).count("aten::mul"), str(traced.graph).count("aten::"))
digest(model, *results)
