"""A model is compiled, and what is compiled anew is counted."""
import torch
import torch._dynamo
from _tiny import begin, digest, step

model, optimizer = begin()
compiled = torch.compile(model, backend="aot_eager")
torch.manual_seed(0)
for _ in range(60):
    step(compiled, optimizer)
counters = torch._dynamo.utils.counters
print(sorted(counters["stats"].items()), sorted(counters["graph_break"].items()), sorted(counters["frames"].items()))
digest(model)
