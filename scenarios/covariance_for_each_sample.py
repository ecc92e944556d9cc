"""A Kalman filter keeps the same covariance for each sample of its batch.

The covariance, and the gain that follows from it, depend on the model alone and not on what is measured. Expanded to
the batch they are predicted, inverted and multiplied once for each sample. One matrix does for all.

Source: the batched filters of public implementations in PyTorch, which keep a state and a covariance for each sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("equal-matrices-in-batch",)
SAMPLES, SIZE, SEEN, TIMES, STEPS = 48, 48, 24, 6, 8


@dataclass(frozen=True)
class State:
    measured: Tensor
    motion: Tensor
    sees: Tensor
    noise: nn.Parameter
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    motion = torch.eye(SIZE, device=device) + 0.01 * torch.randn(SIZE, SIZE, device=device)
    sees = torch.randn(SEEN, SIZE, device=device) / SIZE**0.5
    noise = nn.Parameter(torch.zeros(SEEN, device=device))
    measured = torch.randn(TIMES, SAMPLES, SEEN, device=device)
    return State(measured, motion, sees, noise, torch.optim.SGD([noise], lr=1e-3, fused=True))


def _filter(state: State, covariance: Tensor) -> Tensor:
    motion, sees, place = state.motion, state.sees, state.measured.new_zeros(SAMPLES, SIZE)
    loss, noise = place.sum(), torch.diag(state.noise.exp())
    for seen in state.measured:
        place, covariance = place @ motion.T, motion @ covariance @ motion.T + 0.01  # expect: equal-matrices-in-batch
        spread = sees @ covariance @ sees.T + noise  # expect: equal-matrices-in-batch
        gain = covariance @ sees.T @ torch.linalg.inv(spread)  # expect: equal-matrices-in-batch
        off = seen - place @ sees.T
        place = place + (gain @ off[..., None]).squeeze(-1)
        covariance = covariance - gain @ sees @ covariance  # expect: equal-matrices-in-batch
        loss = loss + off.square().mean()
    return loss + place.square().mean() + covariance.square().mean()


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        covariance = torch.eye(SIZE, device=state.motion.device).repeat(SAMPLES, 1, 1)
        yield _train(state, covariance)


def fix(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        yield _train(state, torch.eye(SIZE, device=state.motion.device))


def _train(state: State, covariance: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = _filter(state, covariance)
    loss.backward()
    state.optimizer.step()
    return loss.detach()
