# kind: RL
"""Advantage actor-critic on many grid worlds at once."""

import torch
from torch import nn


class Grids:
    """Agents on a torus that look for a goal; all are stepped together."""

    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, count, size=7):
        self.count, self.size = count, size
        self.goal = torch.tensor([size // 2, size // 2])
        self.place = torch.randint(size, (count, 2))

    def observe(self):
        return nn.functional.one_hot(self.place, self.size).flatten(1).float()

    def step(self, action):
        self.place = (self.place + self.moves[action]) % self.size
        reached = (self.place == self.goal).all(1)
        self.place[reached] = torch.randint(self.size, (int(reached.sum()), 2))
        return reached.float() - 0.01, reached.float()


class Agent(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, 128), nn.Tanh())
        self.actor, self.critic = nn.Linear(128, 4), nn.Linear(128, 1)

    def forward(self, seen):
        features = self.trunk(seen)
        return torch.distributions.Categorical(logits=self.actor(features)), self.critic(features).squeeze(1)


def returns_of(rewards, ends, last, gamma):
    out = torch.zeros_like(rewards)
    for world in range(rewards.shape[1]):
        future = last[world]
        for t in range(rewards.shape[0] - 1, -1, -1):
            future = rewards[t, world] + gamma * future * (1 - ends[t, world])  # expect: tensor-element-loop
            out[t, world] = future
    return out


def train(updates=24, horizon=16, gamma=0.97):
    torch.manual_seed(3)
    worlds = Grids(32)
    agent = Agent(14)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2e-3, fused=True)
    for update in range(updates):
        log_probs, values, rewards, ends, entropy = [], [], [], [], 0.0
        for _ in range(horizon):
            policy, value = agent(worlds.observe())
            action = policy.sample()
            reward, end = worlds.step(action)
            log_probs.append(policy.log_prob(action))
            values.append(value)
            rewards.append(reward)
            ends.append(end)
            entropy = entropy + policy.entropy().mean()
        with torch.no_grad():
            last = agent(worlds.observe())[1]
            target = returns_of(torch.stack(rewards), torch.stack(ends), last, gamma)
        values, log_probs = torch.stack(values), torch.stack(log_probs)
        advantage = target - values
        loss = -(log_probs * advantage.detach()).mean() + 0.5 * advantage.square().mean() - 0.01 * entropy / horizon
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        if update % 10 == 0:
            print("update", update, "reward", torch.stack(rewards).mean().item())


train()
