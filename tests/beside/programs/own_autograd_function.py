"""A function with a forward and a backward of its own counts both, and saved tensors pass through hooks."""
import torch
from _tiny import begin, digest

counts = {"forward": 0, "backward": 0, "pack": 0, "unpack": 0}


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        counts["forward"] += 1
        ctx.save_for_backward(tensor)
        return tensor * 2

    @staticmethod
    def backward(ctx, gradient):
        counts["backward"] += 1
        return gradient * 2 + 0 * ctx.saved_tensors[0]


def pack(tensor):
    counts["pack"] += 1
    return tensor


def unpack(tensor):
    counts["unpack"] += 1
    return tensor


model, optimizer = begin()
for _ in range(60):
    optimizer.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        Double.apply(model(torch.randn(4, 8))).pow(2).mean().backward()
    optimizer.step()
    print(counts)
digest(model)
