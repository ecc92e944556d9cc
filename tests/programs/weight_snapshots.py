# kind: training
"""Stochastic weight snapshots at each step for a later ensemble."""
import copy
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(100, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
history = {"weights": [], "loss": []}
for step in range(40):
    x = torch.randn(512, 100)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    history["weights"].append(copy.deepcopy(model.state_dict()))  # expect: growing-live-tensors
    history["loss"].append(loss.detach())
print(torch.stack(history["loss"]).min().item())
