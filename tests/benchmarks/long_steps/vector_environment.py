"""Rollouts in a vector environment that is written in Python, then short updates, as in PPO."""

import math
import random
import sys

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

ENVIRONMENTS, ROLLOUT, EPOCHS, MINIBATCHES = 4, 128, 4, 4


class Pole:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.reset()

    def reset(self) -> list[float]:
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        x, speed, angle, spin = self.state
        force = 10.0 if action else -10.0
        cosine, sine = math.cos(angle), math.sin(angle)
        push = (force + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        slide = push - 0.05 * turn * cosine / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * slide, angle + 0.02 * spin, spin + 0.02 * turn]
        failed = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return (self.reset() if failed else self.state), 1.0, failed


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def act(self, seen: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        choice = Categorical(logits=self.actor(seen))
        if action is None:
            action = choice.sample()
        return action, choice.log_prob(action), choice.entropy(), self.critic(seen)


def main(rounds: int) -> None:
    torch.manual_seed(0)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    poles = [Pole(seed) for seed in range(ENVIRONMENTS)]
    now = torch.tensor([pole.state for pole in poles])
    for iteration in range(rounds):
        seen = torch.zeros(ROLLOUT, ENVIRONMENTS, 4)
        actions, logs, values, rewards, ends = (torch.zeros(ROLLOUT, ENVIRONMENTS) for _ in range(5))
        for moment in range(ROLLOUT):
            seen[moment] = now
            with torch.no_grad():
                action, log, _, value = agent.act(now)
            actions[moment], logs[moment], values[moment] = action, log, value.flatten()
            results = [pole.step(chosen) for pole, chosen in zip(poles, action.tolist(), strict=True)]
            now = torch.tensor([state for state, _, _ in results])
            rewards[moment] = torch.tensor([reward for _, reward, _ in results])
            ends[moment] = torch.tensor([float(failed) for _, _, failed in results])
        advantages = torch.zeros_like(rewards)
        carried = torch.zeros(ENVIRONMENTS)
        for moment in reversed(range(ROLLOUT - 1)):
            delta = rewards[moment] + 0.99 * values[moment + 1] * (1 - ends[moment]) - values[moment]
            advantages[moment] = carried = delta + 0.95 * 0.99 * (1 - ends[moment]) * carried
        returns = (advantages + values).flatten()
        flat_seen, flat_actions = seen.flatten(0, 1), actions.flatten()
        flat_logs, flat_advantages = logs.flatten(), advantages.flatten()
        for _ in range(EPOCHS):
            for part in torch.randperm(ROLLOUT * ENVIRONMENTS).chunk(MINIBATCHES):
                _, log, entropy, value = agent.act(flat_seen[part], flat_actions[part])
                ratio = (log - flat_logs[part]).exp()
                gain = flat_advantages[part]
                policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = policy + 0.5 * (value.flatten() - returns[part]).square().mean() - 0.01 * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if iteration % 20 == 0:
            print(f"iteration {iteration}: {ends.sum().item():.0f} poles fell")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
