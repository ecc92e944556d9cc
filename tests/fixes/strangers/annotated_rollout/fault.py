from __future__ import annotations

import dataclasses
from typing import Iterator

import torch
from torch import Tensor, nn


@dataclasses.dataclass
class Rollout:
    """What the policy has seen since the last update."""

    width: int
    states: Tensor = dataclasses.field(init=False)
    rewards: list[float] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.states = torch.empty(0, self.width)
        self.rewards = []

    def add(self, state: Tensor, reward: float) -> None:
        self.states = torch.cat((self.states, state.unsqueeze(0)), dim=0)  # expect: growing-concatenation
        self.rewards.append(reward)

    def returns(self, gamma: float = 0.99) -> Tensor:
        total, out = 0.0, []
        for reward in reversed(self.rewards):
            total = reward + gamma * total
            out.append(total)
        return torch.tensor(out[::-1])


class Pendulums:
    def __init__(self, width: int) -> None:
        self.state = torch.linspace(-1, 1, width)

    def play(self, moves: int) -> Iterator[tuple[Tensor, float]]:
        for _ in range(moves):
            self.state = (self.state * 1.01).roll(1).clamp(-2, 2)
            yield self.state, float(self.state[0])


def main(updates: int = 12, moves: int = 1200, width: int = 512) -> None:
    torch.manual_seed(17)
    critic = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, 1))
    optimiser = torch.optim.Adam(critic.parameters(), lr=3e-4)
    world, rollout = Pendulums(width), Rollout(width)
    for update in range(updates):
        rollout.clear()
        for state, reward in world.play(moves):
            rollout.add(state, reward)
        value = critic(rollout.states).squeeze(-1)
        loss = nn.functional.smooth_l1_loss(value, rollout.returns())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"update {update}: critic {loss.item():.5f}")


if __name__ == "__main__":
    main()
