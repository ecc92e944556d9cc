"""A table that never changes is sent to the GPU in each forward pass.

A tensor that a module keeps as a plain attribute stays on the host when the module moves, so somebody wrote
``.to(x.device)`` where it is used. Now every step sends the whole table over the bus, and waits for it. A buffer moves
with the module, once.

Its recording, of an H200, holds one step: the one whose lines are marked.

Source: PyTorch documentation, ``torch.nn.Module.register_buffer``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("repeated-transfer",)
effect = "time on a GPU"
needs_gpu = True

STEPS = 24


class Kept(nn.Module):
    """Adds a table that it keeps as a plain attribute."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table.to(x.device)  # expect: repeated-transfer


class Registered(nn.Module):
    """Adds a table that moves with the module."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


@dataclass(frozen=True)
class State:
    device: str
    inputs: Tensor
    table: Tensor


def setup(device: str) -> State:
    torch.manual_seed(0)
    length = 64 if device == "cpu" else 4096  # 16 MB on a GPU
    return State(device, torch.randn(4, length, 1024, device=device), torch.randn(length, 1024))


def pitfall(state: State) -> Iterator[Tensor]:
    model = Kept(state.table).to(state.device)
    for number in range(STEPS):
        yield model(state.inputs * number).square().mean()


def fix(state: State) -> Iterator[Tensor]:
    model = Registered(state.table.clone()).to(state.device)
    for number in range(STEPS):
        yield model(state.inputs * number).square().mean()
