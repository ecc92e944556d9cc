"""Creating a tensor on the host and then moving it to the device fills it slowly and copies it needlessly.

``torch.rand(n).to(device)`` reads like "random numbers on the device". But it draws them on a single host thread, then
sends them over the bus from pageable memory, and the host waits for both. With ``device=`` the device draws them.

The two devices draw different numbers from one seed, so the result is an average over many of them: the integral of
exp(-x*x) from 0 to 1 by random sampling, 0.7468 with either generator.

Source: PyTorch tutorials, Performance Tuning Guide, "Create tensors directly on the target device".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("host-created-tensor",)
effect = "time on a GPU"
needs_gpu = True

STEPS = 24
SAMPLES = 4_000_000


@dataclass(frozen=True)
class State:
    device: str


def setup(device: str) -> State:
    torch.manual_seed(0)
    return State(device)


def pitfall(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        x = torch.rand(SAMPLES).to(state.device)  # expect: host-created-tensor
        estimate = torch.exp(-x * x).mean()
        yield estimate


def fix(state: State) -> Iterator[Tensor]:
    for _ in range(STEPS):
        x = torch.rand(SAMPLES, device=state.device)
        estimate = torch.exp(-x * x).mean()
        yield estimate
