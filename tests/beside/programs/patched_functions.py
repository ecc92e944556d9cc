"""Functions and operators of torch are replaced by functions that count, in the middle."""
import torch
from _tiny import begin, digest, step

counts = {}


def counting(owner, name):
    original = getattr(owner, name)

    def counted(*args, **kwargs):
        counts[name] = counts.get(name, 0) + 1
        return original(*args, **kwargs)

    setattr(owner, name, counted)
    return lambda: setattr(owner, name, original)


model, optimizer = begin()
for number in range(60):
    if number in (3, 30):
        undo = [
            counting(torch.nn.functional, "linear"),
            counting(torch.Tensor, "pow"),
            counting(torch.Tensor, "__mul__"),
            counting(torch.Tensor, "item"),
            counting(torch, "randn"),
            counting(torch, "empty"),
            counting(torch, "tensor"),
            counting(torch.Tensor, "data_ptr"),
            counting(torch.Tensor, "untyped_storage"),
            counting(torch.Tensor, "numel"),
            counting(torch.Tensor, "size"),
            counting(torch.Tensor, "element_size"),
            counting(torch.Tensor, "detach"),
            counting(torch.Tensor, "clone"),
        ]
    step(model, optimizer)
    print(number, sorted(counts.items()))
    if number in (20, 50):
        for one in undo:
            one()
digest(model)
