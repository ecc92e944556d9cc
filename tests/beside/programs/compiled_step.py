"""The optimizer's step and the whole training step are compiled."""
# beside: mask (?m)^W\d{4} .*\n
import torch
from _tiny import begin, digest

model, optimizer = begin()


@torch.compile(backend="eager")
def train_step(inputs):
    optimizer.zero_grad()
    loss = model(inputs).pow(2).mean()
    loss.backward()
    return loss


update = torch.compile(optimizer.step, backend="eager")
for _ in range(60):
    loss = train_step(torch.randn(4, 8))
    update()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"], sorted(torch._dynamo.utils.counters["graph_break"]))
digest(model, loss)
