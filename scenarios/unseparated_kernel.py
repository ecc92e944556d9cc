"""A blur multiplies each pixel with 441 weights where 42 give the same.

A Gaussian window is a column times a row. Multiplied out beforehand and given to one convolution, it costs 21 * 21
multiplications for each pixel. Two convolutions, with the column and with the row, give the same image.

Source: https://github.com/pytorch/vision/issues/7413
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

triggers = ("unseparated-kernel",)
CHANNELS, SIZE = 8, 21


@dataclass(frozen=True)
class State:
    model: nn.Conv2d
    optimizer: torch.optim.Optimizer
    line: Tensor
    kernel: Tensor
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False).to(device)
    line = torch.exp(-((torch.arange(SIZE, device=device) - SIZE // 2) ** 2) / 40.0)
    line = line / line.sum()
    kernel = (line[:, None] * line[None]).repeat(CHANNELS, 1, 1, 1)
    batches = [torch.rand(4, CHANNELS, 64, 64, device=device) for _ in range(16)]
    return State(model, torch.optim.SGD(model.parameters(), lr=0.01), line, kernel, batches)


def pitfall(state: State) -> Iterator[Tensor]:
    for x in state.batches:
        blurred = functional.conv2d(x, state.kernel, groups=CHANNELS)  # expect: unseparated-kernel
        yield learn(state, blurred)


def fix(state: State) -> Iterator[Tensor]:
    column, row = (state.line.view(1, 1, *shape).repeat(CHANNELS, 1, 1, 1) for shape in ((SIZE, 1), (1, SIZE)))
    for x in state.batches:
        blurred = functional.conv2d(functional.conv2d(x, column, groups=CHANNELS), row, groups=CHANNELS)
        yield learn(state, blurred)


def learn(state: State, blurred: Tensor) -> Tensor:
    loss = (state.model(blurred) - blurred).square().mean()
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
