import xformers.ops as xops

import torch

torch.manual_seed(0)
projection = torch.nn.Linear(16, 48)
optimizer = torch.optim.SGD(projection.parameters(), 0.1)
x = torch.randn(2, 8, 16)
for _ in range(50):
    query, key, value = xops.unbind(projection(x).reshape(2, 8, 3, 16), dim=2)
    weights = (query @ key.transpose(1, 2)).softmax(-1)
    loss = (weights @ value - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
