"""A long filter is applied by Fourier transforms that compute both halves of each spectrum.

The spectrum of a real signal is the mirror of itself. `fft` computes, stores and differentiates all of it, `rfft` the
half that is not known from the other.

Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.rfft.html
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("mirrored-spectrum",)
LENGTH, SIZE = 4096, 8192


@dataclass(frozen=True)
class State:
    kernel: nn.Parameter
    optimizer: torch.optim.Optimizer
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    kernel = nn.Parameter(torch.randn(16, LENGTH, device=device) / LENGTH)
    batches = [torch.randn(8, 16, LENGTH, device=device) for _ in range(16)]
    return State(kernel, torch.optim.SGD([kernel], lr=0.1), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        spectrum = torch.fft.fft(x, n=SIZE) * torch.fft.fft(state.kernel, n=SIZE)  # expect: mirrored-spectrum
        yield learn(state, x, torch.fft.ifft(spectrum).real)


def fix(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        spectrum = torch.fft.rfft(x, n=SIZE) * torch.fft.rfft(state.kernel, n=SIZE)
        yield learn(state, x, torch.fft.irfft(spectrum, n=SIZE))


def learn(state: State, x: Tensor, filtered: Tensor) -> Tensor:
    loss = (filtered[..., :LENGTH] - x.roll(1, -1)).square().mean()
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
