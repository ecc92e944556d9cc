# kind: RL
# expect: no opportunities
"""Advantages that need the ones after them, an average of the weights, and a step of each parameter by hand."""

import copy

import torch
from torch import nn

torch.manual_seed(7)
STEPS, WORLDS = 96, 192
agent = nn.Sequential(nn.Linear(24, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
average = copy.deepcopy(agent)
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, fused=True)


def advantages_of(rewards, values, ends, gamma=0.99, decay=0.95):
    """Generalised advantage estimation: each needs the one after it."""
    advantages, last = [], torch.zeros(WORLDS)
    for reward, value, following, end in zip(rewards[::-1], values[-2::-1], values[::-1], ends[::-1]):
        surprise = reward + gamma * following * (1 - end) - value
        last = surprise + gamma * decay * (1 - end) * last
        advantages.insert(0, last)
    return torch.stack(advantages)


for update in range(16):
    seen = torch.randn(STEPS + 1, WORLDS, 24)
    rewards = list(torch.randn(STEPS, WORLDS))
    ends = list((torch.rand(STEPS, WORLDS) < 0.02).float())
    values = agent(seen).squeeze(-1)
    with torch.no_grad():
        advantages = advantages_of(rewards, list(values.detach()), ends)
    loss = (values[:-1] - (values[:-1].detach() + advantages)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, weight in zip(average.parameters(), agent.parameters()):
            mean.lerp_(weight, 0.01)
print("loss", loss.item())
