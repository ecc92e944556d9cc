# kind: RL
"""Actor-critic on a falling lander: one long episode for each update."""

import random

import torch
from torch import nn
from torch.distributions import Categorical


class Lander:
    """Falls, and may burn fuel to slow down; an episode has a fixed length."""

    length = 60

    def reset(self):
        self.height, self.speed, self.t = 10.0 + random.random(), 0.0, 0
        return torch.tensor([self.height, self.speed])

    def step(self, action):
        self.speed += 0.05 - (0.12 if action else 0.0)
        self.height = max(self.height - self.speed, 0.0)
        self.t += 1
        return torch.tensor([self.height, self.speed]), -abs(self.speed) - 0.1 * action, self.t >= self.length


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, seen):
        features = self.body(seen)
        return Categorical(logits=self.actor(features), validate_args=False), self.critic(features)


def play(env, agent):
    steps, rewards, seen, done = [], [], env.reset(), False
    while not done:
        policy, value = agent(seen)
        action = policy.sample()
        steps.append((policy.log_prob(action), value, policy.entropy()))
        seen, reward, done = env.step(action.item())
        rewards.append(reward)
    return steps, rewards


def loss_of(steps, rewards, gamma=0.97, beta=0.01):
    returns, future = [], 0.0
    for reward in reversed(rewards):
        future = reward + gamma * future
        returns.insert(0, future)
    actor, critic, bonus = 0, 0, 0
    for (log_prob, value, entropy), target in zip(steps, returns):  # expect: tensor-list-loop
        advantage = target - value
        actor = actor - log_prob * advantage.detach()
        critic = critic + nn.functional.huber_loss(value, torch.tensor([target]))
        bonus = bonus + beta * entropy
    return (actor + critic - bonus).sum()


random.seed(2)
torch.manual_seed(2)
env, agent = Lander(), ActorCritic()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, fused=True)
for episode in range(60):
    loss = loss_of(*play(env, agent))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
