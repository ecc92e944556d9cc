"""Each batch travels to the GPU in the stream that computes, so the GPU computes nothing until it has arrived.

From pinned memory with `non_blocking=True` the host goes on, but a stream runs its work in order. The GPU's copy
engines work in parallel to its kernels if copies have a stream of their own. Then the next batch travels while this one
is used.

Its recording is of an H200.

Source: PyTorch documentation, CUDA semantics, "CUDA streams" and "Use pinned memory buffers"; NVIDIA/apex's
`data_prefetcher` in its ImageNet example does the same.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("exposed-transfer",)
effect = "time on a GPU"
needs_gpu = True

STEPS = 24
SIDE = 64


@dataclass(frozen=True)
class State:
    device: str
    batches: list[Tensor]
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    count = 8 if device == "cpu" else 2048  # 100 MB on a GPU
    batches = [torch.randn(count, 3, SIDE, SIDE) for _ in range(3)]
    if device == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    layers = nn.Conv2d(3, 32, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    model = nn.Sequential(*layers).to(device)
    return State(device, batches, model, torch.optim.SGD(model.parameters(), lr=0.01))


def train(state: State, images: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = state.model(images).square().mean()
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    for number in range(STEPS):
        images = state.batches[number % 3].to(state.device, non_blocking=True)  # expect: exposed-transfer
        yield train(state, images)


def fix(state: State) -> Iterator[Tensor]:
    side = torch.cuda.Stream() if state.device == "cuda" else None
    ahead = state.batches[0].to(state.device)
    for number in range(STEPS):
        images = ahead
        if side is not None:
            torch.cuda.current_stream().wait_stream(side)
            images.record_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side) if side is not None else nullcontext():
            ahead = state.batches[(number + 1) % 3].to(state.device, non_blocking=True)
        yield train(state, images)
