# kind: optimizer in the backward pass
"""Each parameter is updated in the backward pass as soon as its gradient is there."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}


def update(p):
    optimizers[p].step()
    optimizers[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for i in range(40):
    loss = nn.functional.cross_entropy(model(torch.randn(512, 256)), torch.randint(10, (512,)))
    loss.backward()
print(loss.item())
