"""An echo of thousands of samples is added to speech by a direct convolution.

Each sample of the echo is multiplied with each sample of the speech. The transforms of both, multiplied and transformed
back, give the same in a fraction of the time.

Source: pytorch/audio issue 1408 and torch-audiomentations, which convolve by `torch.fft`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

triggers = ("long-kernel-convolution",)
SIZE = 16384


@dataclass(frozen=True)
class State:
    speech: list[Tensor]
    echo: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    speech = [torch.randn(4, 12288, device=device) for _ in range(24)]
    decay = torch.exp(-torch.arange(4096, device=device) / 300)
    return State(speech, torch.randn(4, 4096, device=device) * decay)


def pitfall(state: State) -> Iterator[Tensor]:
    kernel = state.echo.flip(1).unsqueeze(1)
    for speech in state.speech:
        padded = functional.pad(speech, (state.echo.size(1) - 1, 0)).unsqueeze(0)
        heard = functional.conv1d(padded, kernel, groups=len(speech))  # expect: long-kernel-convolution
        yield heard.squeeze(0).square().mean()


def fix(state: State) -> Iterator[Tensor]:
    echo = torch.fft.rfft(state.echo, SIZE)
    for speech in state.speech:
        heard = torch.fft.irfft(torch.fft.rfft(speech, SIZE) * echo, SIZE)[:, : speech.size(1)]
        yield heard.square().mean()
