"""Running a chain of elementwise operations one at a time reads and writes the whole tensor once for each of them.

A formula from a paper, here the smoothstep curve of degree five, is eight operations. Each of them loads its input from
memory, does one addition or multiplication, and stores a result that the next one loads again, so the memory decides
the time, not the arithmetic. ``torch.compile`` turns the chain into a single pass.

The compiler is slow the first time: 20 s on two CPU cores, and still 3 to 7 s in a new process with a warm cache. On a
CPU it needs a C++ compiler. `fix` pays for that before its first step; a program that runs
for seconds never earns it back.

Source: PyTorch tutorials, Performance Tuning Guide, "Fuse operations" (its example is GELU).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ("unfused-pointwise",)


@dataclass(frozen=True)
class State:
    images: list[tuple[Tensor, Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    red, green, blue = torch.rand(3, 2048, 1024, device=device).square().unbind(0)
    return State([(red, green, blue)] * 20)


def pitfall(state: State) -> Iterator[Tensor]:
    def smoothstep(x: Tensor) -> Tensor:
        return x * x * x * (x * (6 * x - 15) + 10)  # expect: unfused-pointwise

    smoothstep(state.images[0][0])
    for planes in state.images:
        brightness = torch.zeros((), device=planes[0].device)
        for x in planes:
            brightness = brightness + smoothstep(x).mean()
        yield brightness


def fix(state: State) -> Iterator[Tensor]:
    @torch.compile
    def smoothstep(x: Tensor) -> Tensor:
        return x * x * x * (x * (6 * x - 15) + 10)

    smoothstep(state.images[0][0])
    for planes in state.images:
        brightness = torch.zeros((), device=planes[0].device)
        for x in planes:
            brightness = brightness + smoothstep(x).mean()
        yield brightness
