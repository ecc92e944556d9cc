"""A loss for each time step, computed in a Python loop over lists of tensors, runs hundreds of tiny operations.

An agent, a decoder or a tracker appends a tensor per time step to a list, so the loss becomes a loop over the lists,
`zip(log_probs, values, returns)`. No time step's loss needs another's. Stacked, each list is a single tensor, and every
operation runs once, forward and backward.

Source: PyTorch examples, reinforcement_learning/actor_critic.py (the loop); PyTorch documentation, "Broadcasting
semantics" (how to say it without one).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("tensor-list-loop",)


@dataclass(frozen=True)
class State:
    log_probs: list[Tensor]
    values: list[Tensor]
    returns: list[list[float]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    log_probs = [torch.randn((), device=device).requires_grad_() for _ in range(400)]
    values = [torch.randn(1, device=device).requires_grad_() for _ in range(400)]
    return State(log_probs, values, torch.randn(24, 400).tolist())


def pitfall(state: State) -> Iterator[Tensor]:
    for returns in state.returns:
        actor, critic = [], []
        steps = zip(state.log_probs, state.values, returns, strict=True)
        for log_prob, value, target in steps:  # expect: tensor-list-loop
            actor.append(-log_prob * (target - value.item()))
            expected = torch.tensor([target], device=value.device)
            critic.append(nn.functional.smooth_l1_loss(value, expected))
        loss = torch.stack(actor).sum() + torch.stack(critic).sum()
        loss.backward()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    for returns in state.returns:
        log_probs, values = torch.stack(state.log_probs), torch.cat(state.values)
        targets = torch.tensor(returns, device=values.device)
        actor = -log_probs * (targets - values.detach())
        critic = nn.functional.smooth_l1_loss(values, targets, reduction="none")
        loss = actor.sum() + critic.sum()
        loss.backward()
        yield loss.detach()
