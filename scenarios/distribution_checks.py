"""Each action of a policy, and its probability, is checked element by element.

`Normal` looks whether its mean and its deviation are numbers, and whether each value that it is asked about is one. The
network is small, so these questions take as long as it does.

Source: PyTorch documentation, torch.distributions.Distribution.set_default_validate_args.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Normal

triggers = ("distribution-checks",)


@dataclass(frozen=True)
class State:
    policy: nn.Module
    states: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)).to(device)
    return State(policy, [torch.randn(16, 8, device=device) for _ in range(240)])


def moments(state: State, states: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        mean, width = state.policy(states).chunk(2, dim=-1)
        return mean, width.exp()


def pitfall(state: State) -> Iterator[Tensor]:
    for states in state.states:
        mean, deviation = moments(state, states)
        policy = Normal(mean, deviation)  # expect: distribution-checks
        yield policy.log_prob(mean + 0.1).sum()


def fix(state: State) -> Iterator[Tensor]:
    for states in state.states:
        mean, deviation = moments(state, states)
        policy = Normal(mean, deviation, validate_args=False)
        yield policy.log_prob(mean + 0.1).sum()
