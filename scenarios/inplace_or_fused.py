"""Two elementwise operations in a row read and write the whole tensor twice, in place or not; one kernel does it once.

``x.cos().cos()`` on 16 MB moves 64 MB: each operation reads and writes all of it. ``x.cos().cos_()`` moves as many, as
the second reads what the first wrote and writes it again; it saves only the memory for another result, and of a tensor
that autograd still needs it may not be done at all. One kernel for both, as ``torch.compile`` makes it, reads 16 MB and
writes 16 MB, half of it. On a GPU, which computes far faster than its memory delivers, two cosines then take as long
as one; a CPU computes them for longer than it moves the data, and gains less.

Two operations stand everywhere and are not worth a compiler each time, so nothing is reported: unfused-pointwise begins
at three. The compiler needs seconds at first, and on a CPU a C++ compiler.

Source: Horace He, "Making Deep Learning Go Brrrr From First Principles", "Operator fusion".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

triggers = ()
effect = "time"


@dataclass(frozen=True)
class State:
    x: Tensor
    steps: int = 40


def setup(device: str) -> State:
    torch.manual_seed(0)
    return State(torch.randn(4 << 20, device=device))


def pitfall(state: State) -> Iterator[Tensor]:
    def twice(x: Tensor) -> Tensor:
        return x.cos().cos()

    for _ in range(state.steps):
        yield twice(state.x)[:8]


def fix(state: State) -> Iterator[Tensor]:
    @torch.compile
    def twice(x: Tensor) -> Tensor:
        return x.cos().cos()

    twice(state.x)
    for _ in range(state.steps):
        yield twice(state.x)[:8]
