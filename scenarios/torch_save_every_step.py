"""Writing a checkpoint with torch.save in every training step makes the step wait for the file system.

It is meant to protect against crashes, and each file replaces the one before. A checkpoint with the optimizer's state
is three times the size of the model, and nothing is computed until it is written. Once in a few hundred steps, a crash
loses little more.

Source: PyTorch tutorials, "Saving and Loading a General Checkpoint"; Mohan, Phanishayee, Chidambaram, "CheckFreq",
FAST 2021, on what checkpoints cost and how often to write them.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

triggers = ("checkpoint-in-step",)


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[tuple[Tensor, Tensor]]


def setup(device: str) -> State:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    labels = torch.randint(10, (24, 64), device=device)
    return State(model, optimizer, list(zip(torch.randn(24, 64, 256, device=device), labels, strict=True)))


def train_step(state: State, x: Tensor, y: Tensor) -> Tensor:
    state.optimizer.zero_grad()
    loss = nn.functional.cross_entropy(state.model(x), y)
    loss.backward()
    state.optimizer.step()
    return loss.detach()


def pitfall(state: State) -> Iterator[Tensor]:
    with tempfile.TemporaryDirectory() as directory:
        for x, y in state.batches:
            loss = train_step(state, x, y)
            checkpoint = {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}
            torch.save(checkpoint, Path(directory, "last.pt"))  # expect: checkpoint-in-step
            yield loss


def fix(state: State) -> Iterator[Tensor]:
    with tempfile.TemporaryDirectory() as directory:
        for step, (x, y) in enumerate(state.batches):
            loss = train_step(state, x, y)
            if step % 500 == 499:
                checkpoint = {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}
                torch.save(checkpoint, Path(directory, "last.pt"))
            yield loss
