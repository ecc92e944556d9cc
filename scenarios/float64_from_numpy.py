"""NumPy's default float64 goes into the model unchanged, and the model is made double to match.

NumPy creates float64, ``torch.from_numpy`` keeps the type, and the first matrix product complains that Double and Float
do not match. Calling ``model.double()`` silences it and doubles the work: twice the bytes, half the arithmetic speed on
a CPU, far less than half on most GPUs. Nothing else in this training needs more than float32.

Source: PyTorch documentation, torch.from_numpy and torch.set_default_dtype (float32 is PyTorch's default).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

triggers = ("float64-compute",)


@dataclass(frozen=True)
class State:
    device: str
    model: nn.Module
    batches: list[npt.NDArray[np.float64]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    return State(device, model.to(device), [rng.standard_normal((256, 256)) for _ in range(20)])


def pitfall(state: State) -> Iterator[Tensor]:
    model = state.model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for batch in state.batches:
        optimizer.zero_grad()
        prediction = model(torch.from_numpy(batch).to(state.device))  # expect: float64-compute
        loss = (prediction - 1).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def fix(state: State) -> Iterator[Tensor]:
    model = state.model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for batch in state.batches:
        optimizer.zero_grad()
        prediction = model(torch.from_numpy(batch).float().to(state.device))
        loss = (prediction - 1).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.detach()
