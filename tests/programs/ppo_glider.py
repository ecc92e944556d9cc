# kind: RL, PPO
"""A glider learns to stay in the updraught. Each flight is learnt from in many small steps."""

import torch
from torch import nn
from torch.distributions import Normal

GLIDERS, HORIZON, PASSES, PARTS, BEAMS = 128, 36, 2, 8, 128


class Air:
    """Heights and speeds of many gliders in one updraught, and what their sensors see of it."""

    def __init__(self):
        self.height, self.speed = torch.rand(GLIDERS), torch.zeros(GLIDERS)
        self.beams = torch.linspace(0.5, 12, BEAMS)

    def observe(self):
        return torch.sin(self.height[:, None] * self.beams) + self.speed[:, None]

    def fly(self, push):
        lift = torch.exp(-((self.height - 0.5) ** 2) * 8) - 0.6
        self.speed = 0.95 * self.speed + 0.05 * (lift + push.clamp(-1, 1))
        self.height = (self.height + self.speed).clamp(0, 1)
        return 1 - (self.height - 0.5).abs()


class Flight:
    def __init__(self):
        self.seen = torch.empty(0, BEAMS)
        self.moves = []

    def add(self, seen, push, chance, reward):
        self.seen = torch.cat((self.seen, seen))  # expect: growing-concatenation
        self.moves.append((push, chance, reward))


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(BEAMS, 48), nn.Tanh())
        self.push, self.worth = nn.Linear(48, 1), nn.Linear(48, 1)
        self.spread = nn.Parameter(torch.zeros(1))

    def forward(self, seen):
        hidden = self.body(seen)
        return Normal(self.push(hidden)[..., 0], self.spread.exp()), self.worth(hidden)[..., 0]


@torch.no_grad()
def fly(air, pilot):
    flight = Flight()
    for _ in range(HORIZON):
        seen = air.observe()
        plan, _ = pilot(seen)
        push = plan.sample()
        flight.add(seen, push, plan.log_prob(push), air.fly(push))
    return flight


def returns_of(rewards, discount=0.95):
    total, found = torch.zeros(GLIDERS), []
    for reward in reversed(rewards):
        total = reward + discount * total
        found.append(total)
    return torch.cat(found[::-1])


def learn(pilot, optimizer, flight):
    push, chance, rewards = zip(*flight.moves)
    push, chance, worth = torch.cat(push), torch.cat(chance), returns_of(rewards)
    for _ in range(PASSES):
        for part in torch.randperm(len(push)).chunk(PARTS):
            plan, guess = pilot(flight.seen[part])
            gain = worth[part] - guess
            ratio = (plan.log_prob(push[part]) - chance[part]).exp()
            surprise = gain.detach()
            loss = -torch.min(ratio * surprise, ratio.clamp(0.8, 1.2) * surprise).mean() + 0.5 * gain.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    torch.manual_seed(5)
    air, pilot = Air(), Pilot()
    optimizer = torch.optim.Adam(pilot.parameters(), lr=1e-3, fused=True)
    for _ in range(30):
        learn(pilot, optimizer, fly(air, pilot))


main()
