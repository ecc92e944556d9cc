"""A DataLoader without persistent_workers ends its worker processes after each epoch and starts them again.

With a small dataset an epoch is short, and much of it is spent on starting processes, waiting for their first batch and
ending them again. ``persistent_workers=True`` keeps the workers, and the dataset that each of them holds.

Source: PyTorch documentation, torch.utils.data, DataLoader, ``persistent_workers``.
"""

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

triggers = ("workers-respawned",)

# A scenario is loaded by its path, so a worker in a new process could not import the dataset's class.
START = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
EPOCHS = 24


class Waveforms(Dataset[tuple[Tensor, int]]):
    """Short recordings; each reading returns a spectrum."""

    def __init__(self, count: int) -> None:
        self.waves = torch.randn(count, 512)

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.fft.rfft(self.waves[index]).abs(), index % 4


@dataclass(frozen=True)
class State:
    device: str
    dataset: Waveforms
    model: nn.Module
    optimizer: torch.optim.Optimizer


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(257, 128), nn.ReLU(), nn.Linear(128, 4)).to(device)
    return State(device, Waveforms(256), model, torch.optim.SGD(model.parameters(), lr=0.001, fused=True))


def train_step(state: State, x: Tensor, y: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = nn.functional.cross_entropy(state.model(x.to(state.device)), y.to(state.device))
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    loader = DataLoader(  # expect: workers-respawned
        state.dataset, batch_size=32, num_workers=2, multiprocessing_context=START
    )
    for _ in range(EPOCHS):
        losses = []
        for x, y in loader:
            losses.append(train_step(state, x, y))
        yield torch.stack(losses).mean()


def fix(state: State) -> Iterator[Tensor]:
    loader = DataLoader(
        state.dataset, batch_size=32, num_workers=2, multiprocessing_context=START, persistent_workers=True
    )
    for _ in range(EPOCHS):
        losses = []
        for x, y in loader:
            losses.append(train_step(state, x, y))
        yield torch.stack(losses).mean()
