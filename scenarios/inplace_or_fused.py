"""Two elementwise operations in a row read and write the tensor twice, in place or not; one kernel does it once.

``x.cos().cos()`` on 16 MB moves 64 MB, because each operation reads and writes all of it. ``x.cos().cos_()`` moves as
many: the second reads what the first wrote and writes it again. It only saves the memory of another result, and a
tensor that autograd still needs must not be overwritten. A single kernel for both, as ``torch.compile`` makes it, reads
16 MB and writes 16 MB, half as much. A GPU computes far faster than its memory delivers, so two cosines in one kernel
take as long as one. On a CPU the second result is the expensive part, because the system provides its memory anew each
time: on one thread two operations took 22 ms, with the second in place 9, and one kernel 6.

Two operations in a row are everywhere and not worth a compiler each time, so nothing is reported: unfused-pointwise
begins at three. The compiler takes seconds at first, and on a CPU it needs a C++ compiler.

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
        yield twice(state.x).sum()


def fix(state: State) -> Iterator[Tensor]:
    @torch.compile
    def twice(x: Tensor) -> Tensor:
        return x.cos().cos()

    twice(state.x)
    for _ in range(state.steps):
        yield twice(state.x).sum()
