"""Making a tensor of a list of NumPy arrays goes through every number as a Python object.

``torch.tensor`` and ``torch.FloatTensor`` read a list element by element, and treat a list of arrays as a list of
sequences; PyTorch even warns that this is extremely slow. ``np.stack`` copies the arrays into one, as blocks of memory,
and ``torch.from_numpy`` shares its memory.

Source: the warning of torch.tensor on a list of numpy.ndarrays; PyTorch issue 13918.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

triggers = ("slow-tensor-construction",)


@dataclass(frozen=True)
class State:
    policy: nn.Module
    rollouts: list[list[NDArray[np.float32]]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    draws = np.random.default_rng(0)
    rollouts = [[draws.standard_normal(96, dtype=np.float32) for _ in range(512)] for _ in range(30)]
    policy = nn.Sequential(nn.Linear(96, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    return State(policy.to(device).requires_grad_(False), rollouts)


def pitfall(state: State) -> Iterator[Tensor]:
    device = next(state.policy.parameters()).device
    for observations in state.rollouts:
        batch = torch.tensor(observations, device=device)  # expect: slow-tensor-construction
        yield state.policy(batch)


def fix(state: State) -> Iterator[Tensor]:
    device = next(state.policy.parameters()).device
    for observations in state.rollouts:
        batch = torch.from_numpy(np.stack(observations)).to(device)
        yield state.policy(batch)
