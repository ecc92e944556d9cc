"""A sample is a dictionary of 64 small tensors, and each of them is sent to the GPU on its own.

A copy of a few kilobytes crosses the bus in a microsecond. The call is what costs: the operator, memory for the result,
the runtime's call, and from ordinary memory a wait for the GPU, 20 to 40 µs in all. Packed into one tensor, the sample
takes a single call, and ``split`` gives views of its parts on the device.

Its recording, of an H200, holds one step: the one whose lines are marked.

Source: NVIDIA, CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device": "batching many small transfers
into one larger transfer performs significantly better than making each transfer separately".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ("many-small-transfers",)
effect = "time on a GPU"
needs_gpu = True

STEPS = 24
FEATURES = 64
WIDTH = 64
ROWS = 64


@dataclass(frozen=True)
class State:
    device: str
    samples: list[dict[str, Tensor]]
    model: nn.Module


def setup(device: str) -> State:
    torch.manual_seed(0)
    samples = [{f"feature {k}": torch.randn(ROWS, WIDTH) for k in range(FEATURES)} for _ in range(3)]
    model = nn.Sequential(nn.Linear(FEATURES * WIDTH, 256), nn.ReLU(), nn.Linear(256, 16)).to(device)
    return State(device, samples, model)


@torch.no_grad()
def pitfall(state: State) -> Iterator[Tensor]:
    for number in range(STEPS):
        sample = state.samples[number % 3]
        features = [values.to(state.device) for values in sample.values()]  # expect: many-small-transfers
        yield state.model(torch.cat(features, 1))


@torch.no_grad()
def fix(state: State) -> Iterator[Tensor]:
    packed = [torch.cat([*sample.values()], 1) for sample in state.samples]
    packed = [sample.pin_memory() for sample in packed] if state.device != "cpu" else packed
    for number in range(STEPS):
        features = packed[number % 3].to(state.device, non_blocking=True)
        yield state.model(features)
