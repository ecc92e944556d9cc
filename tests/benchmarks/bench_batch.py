"""What a larger batch gives, predicted from a recording and measured.

    python -m tests.benchmarks.bench_batch [MODEL …] [--rounds 5]

Each of ten small models trains on a CPU from a DataLoader of ready samples and is recorded with its batch. Then steps
of that batch, of twice and of four times as much are timed by turns, by the CPU time of the process. The table has the
samples a second, as multiples of those of the recorded batch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import profkit
from profkit.diagnosis.pipeline import read_facts
from profkit.savings.larger_batch import larger_batch

_STEPS = 16
_RECORDED = 60


class Ready(Dataset):
    """Samples that exist already."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        self._data = torch.randn(64, *shape) if classes else torch.randint(0, 1000, (64, *shape))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._data[index % 64]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(64, 128, batch_first=True)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layers(batch)[0]


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(batch))


class Gated(nn.Module):
    """Many small operators on small tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(24))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            batch = torch.tanh(layer(batch)) * torch.sigmoid(batch) + batch
        return batch


def chain(*sizes: int) -> nn.Module:
    return nn.Sequential(*(layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())))


def convolutions(channels: int, depth: int) -> nn.Module:
    layers = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*layers)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    "small mlp": (lambda: chain(32, 64, 64, 8), (32,), 1, 8),
    "wide mlp": (lambda: chain(1024, 1024, 1024), (1024,), 1, 8),
    "full mlp": (lambda: chain(512, 512, 512), (512,), 1, 512),
    "small cnn": (lambda: convolutions(8, 2), (3, 16, 16), 1, 4),
    "larger cnn": (lambda: convolutions(32, 3), (3, 32, 32), 1, 16),
    "lstm": (Recurrent, (20, 64), 1, 4),
    "small transformer": (Tokens, (16,), 0, 4),
    "longer transformer": (Tokens, (64,), 0, 16),
    "gated chain": (Gated, (32,), 1, 16),
    "normalised mlp": (lambda: nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.GELU()), (64,), 1, 64),
}
"""How to make it, the shape of a sample, 0 for numbers of tokens, and the batch."""


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: object, steps: int) -> float:
    """The CPU seconds of a step, the median."""
    took = []
    for _ in range(steps):
        begun = time.process_time()
        batch = next(batches)
        optimizer.zero_grad()
        model(batch).float().mean().backward()
        optimizer.step()
        took.append(time.process_time() - begun)
    return statistics.median(took)


def predict(name: str, directory: Path) -> tuple[float, float] | None:
    """How many times as many samples a second twice and four times the batch give; None if the machine was too busy to
    tell."""
    make, shape, classes, size = MODELS[name]
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Ready(shape, classes), batch_size=size)
    batches = iter(loader)
    with profkit.profile(directory):
        train(model, optimizer, batches, _RECORDED)
    found = larger_batch(read_facts(directory))
    return None if found is None else (found.gain(2), found.gain(4))


def measure(name: str, rounds: int) -> tuple[float, float]:
    """The same, measured by turns."""
    make, shape, classes, size = MODELS[name]
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    took: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for turn in range(rounds):
        for times in took if turn % 2 else reversed(took):
            batches = iter(DataLoader(Ready(shape, classes), batch_size=size * times))
            took[times].append(train(model, optimizer, batches, _STEPS))
    least = {times: min(seconds) for times, seconds in took.items()}
    return 2 * least[1] / least[2], 4 * least[1] / least[4]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    errors = []
    print(
        "| model | batch | 2x predicted | measured | 4x predicted | measured | off by |\n|---|---|---|---|---|---|---|"
    )
    for model_name in options.models or MODELS:
        with tempfile.TemporaryDirectory() as root:
            told = predict(model_name, Path(root, "run"))
        if told is None:
            print(f"| {model_name} | {MODELS[model_name][3]} | the machine was too busy to tell | | | | |", flush=True)
            continue
        seen = measure(model_name, options.rounds)
        off = [one / other - 1 for one, other in zip(told, seen, strict=True)]
        errors += [abs(one) for one in off]
        cells = f"{told[0]:.2f} | {seen[0]:.2f} | {told[1]:.2f} | {seen[1]:.2f} | {off[0]:+.0%}, {off[1]:+.0%}"
        print(f"| {model_name} | {MODELS[model_name][3]} | {cells} |", flush=True)
    if errors:
        print(f"\nmedian error {statistics.median(errors):.0%}, largest {max(errors):.0%}")
