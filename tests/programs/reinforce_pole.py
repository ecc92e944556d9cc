# kind: RL
"""REINFORCE: an agent learns to balance a pole, one episode for each update."""

import math
import random

import torch
from torch import nn
from torch.distributions import Categorical


class CartPole:
    """Euler steps of a cart with a pole, forces of fixed size to the left or to the right."""

    def reset(self):
        self.x = self.v = self.w = 0.0
        self.angle = random.uniform(-0.05, 0.05)
        self.steps = 0
        return self.observe()

    def observe(self):
        return torch.tensor([self.x, self.v, self.angle, self.w])

    def step(self, action):
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * self.w**2 * math.sin(self.angle)) / 1.1
        turn = (9.8 * math.sin(self.angle) - math.cos(self.angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(self.angle) ** 2 / 1.1))
        self.x += 0.02 * self.v
        self.v += 0.02 * (push - 0.05 * turn * math.cos(self.angle) / 1.1)
        self.angle += 0.02 * self.w
        self.w += 0.02 * turn
        self.steps += 1
        done = abs(self.angle) > 0.6 or abs(self.x) > 2.4 or self.steps >= 100
        return self.observe(), 1.0, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, obs):
        return Categorical(logits=self.net(obs))


def discounted(rewards, gamma=0.98):
    returns, running = [], 0.0
    for r in reversed(rewards):
        running = r + gamma * running
        returns.insert(0, running)
    returns = torch.tensor(returns)
    return (returns - returns.mean()) / (returns.std() + 1e-6)


def run_episode(env, policy):
    obs, done = env.reset(), False
    log_probs, rewards = [], []
    while not done:
        dist = policy(obs)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        obs, reward, done = env.step(action.item())
        rewards.append(reward)
    return log_probs, rewards


def main():
    random.seed(1)
    torch.manual_seed(1)
    env, policy = CartPole(), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    objective_history = []
    for episode in range(60):
        log_probs, rewards = run_episode(env, policy)
        objective = -(torch.stack(log_probs) * discounted(rewards)).sum()
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
        objective_history.append(objective)  # expect: retained-graph
        if episode % 20 == 0:
            print(f"episode {episode}: {sum(rewards):.0f} steps")
    print("last objective", objective_history[-1].item())


if __name__ == "__main__":
    main()
