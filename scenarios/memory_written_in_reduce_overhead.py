"""A function that writes into its input gets no CUDA graph, though it was compiled to run as one.

``mode="reduce-overhead"`` asks the compiler to launch all kernels of a function at once, as a CUDA graph. A graph reads
and writes at fixed addresses, so an input that the function changes would have to be copied back. The compiler warns
once and launches the kernels one by one. Returning the new value and copying it outside costs one more kernel.

Source: PyTorch documentation, torch.compiler, CUDAGraph Trees, the part on limitations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("cudagraphs-skipped",)
needs_gpu = True


@dataclass(frozen=True)
class State:
    model: nn.Module
    memory: Tensor
    batches: list[Tensor]


def setup(device: str) -> State:
    torch.manual_seed(0)
    layers = [layer for _ in range(20) for layer in (nn.Linear(256, 256), nn.LayerNorm(256), nn.Tanh())]
    batches = [torch.randn(8, 256, device=device) for _ in range(24)]
    return State(nn.Sequential(*layers).to(device).eval(), torch.zeros(8, 256, device=device), batches)


def pitfall(state: State) -> Iterator[Tensor]:
    @torch.compile(mode="reduce-overhead")
    def remember(x: Tensor, memory: Tensor) -> None:
        y = state.model(x)
        memory.add_(y)  # expect: cudagraphs-skipped

    with torch.inference_mode():
        for batch in state.batches:
            remember(batch, state.memory)
            yield state.memory.clone()


def fix(state: State) -> Iterator[Tensor]:
    @torch.compile(mode="reduce-overhead")
    def remember(x: Tensor, memory: Tensor) -> Tensor:
        y = state.model(x)
        return memory + y

    with torch.inference_mode():
        for batch in state.batches:
            state.memory.copy_(remember(batch, state.memory))
            yield state.memory.clone()
