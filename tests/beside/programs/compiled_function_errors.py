"""A function compiled in full raises where Python would break the graph."""
import torch
from _tiny import digest, train


@torch.compile(backend="eager", fullgraph=True)
def good(tensor):
    return tensor.sin() + 1


@torch.compile(backend="eager", fullgraph=True)
def bad(tensor):
    torch._dynamo.graph_break()
    return tensor + 1


model, _ = train(4)
total = good(torch.ones(3))
try:
    bad(torch.ones(3))
except Exception as error:
    print(type(error).__name__)
more, _ = train(60, 1)
total = total + good(torch.ones(3))
digest(model, more, total)
