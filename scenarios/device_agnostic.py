"""A control: one program for every device, which uses a GPU if there is one and the processor otherwise.

``device = "cuda" if torch.cuda.is_available() else "cpu"`` stands once, at the beginning. After that either each
constructor gets ``device=device``, or ``torch.set_default_device(device)`` sets it for all of them. Both make the
tensors where they are used; ``torch.rand(…).to(device)`` would make them on the processor first.

``x.numpy()`` works only on a processor: NumPy cannot see a GPU's memory, so for a tensor on a GPU PyTorch raises
``TypeError: can't convert cuda:0 device type tensor to numpy``. ``x.cpu().numpy()`` works everywhere, but waits for the
GPU, so it belongs after the loop. If a program dies of this error, profkit reports its line and this remedy.

Both variants are right and compute the same, so nothing is reported in either. profkit chooses the device by the same
test.

Source: PyTorch documentation, "CUDA semantics", "Device-agnostic code"; PyTorch tutorials, "Changing default device".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

triggers = ()
effect = "nothing"

STEPS = 24


@dataclass(frozen=True)
class State:
    device: str


def setup(device: str) -> State:
    torch.manual_seed(0)
    return State(device)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    device = state.device
    model = nn.Sequential(nn.Linear(512, 1024, device=device), nn.ReLU(), nn.Linear(1024, 1, device=device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    x, y = torch.randn(1024, 512, device=device), torch.randn(1024, 1, device=device)
    losses = torch.zeros(STEPS, device=device)
    for number in range(STEPS):
        losses[number] = train(model, optimizer, x, y)
        yield losses[number]
    losses.cpu().numpy()


def fix(state: State) -> Iterator[Tensor]:
    with everything_on(state.device):
        model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
        x, y = torch.randn(1024, 512), torch.randn(1024, 1)
        losses = torch.zeros(STEPS)
        for number in range(STEPS):
            losses[number] = train(model, optimizer, x, y)
            yield losses[number]
        losses.cpu().numpy()


@contextmanager
def everything_on(device: str) -> Iterator[None]:
    """`torch.set_default_device`, undone at the end; a program would set it once and leave it."""
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)
