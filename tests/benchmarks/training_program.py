"""A small training program that `bench_compare.py` records, with a settable amount of extra work in each step.

    python training_program.py KIND DIRECTORY EXTRA [THREADS]     records one run
    python training_program.py KIND calibrate FRACTION [THREADS]  prints the EXTRA that makes a step longer by FRACTION

KIND is one of `PROGRAMS`. The extra work is a product of small matrices, EXTRA times a step.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import profkit

SECONDS = 15
"""Some 40 steps are located, measured, or timed beside these; the others are timed to know the step, and its noise."""
WARM_UP = 3
Model = tuple[nn.Module, torch.Tensor, int]


def perceptron() -> Model:
    layers = [module for _ in range(4) for module in (nn.Linear(512, 512), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(512, 10)), torch.randn(512, 512), 10


def convolutions() -> Model:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    return model, torch.randn(72, 3, 32, 32), 10


def attention() -> Model:
    layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(96 * 48, 10))
    return model, torch.randn(32, 48, 96), 10


PROGRAMS: dict[str, Callable[[], Model]] = {
    "perceptron": perceptron,
    "convolutions": convolutions,
    "attention": attention,
}


def make_step(kind: str) -> Callable[[int], None]:
    """One training step; its argument is the amount of extra work."""
    torch.manual_seed(0)
    model, inputs, classes = PROGRAMS[kind]()
    labels = torch.randint(classes, (len(inputs),))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    matrix = torch.randn(96, 96) / 96

    def step(extra: int) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        for _ in range(extra):
            torch.relu(matrix @ matrix)

    return step


def calibrate(kind: str, fraction: float) -> int:
    """How much extra work takes ``fraction`` of a step: both timed in turn, so that the machine's load hits both."""
    step = make_step(kind)
    matrix, many = torch.randn(96, 96) / 96, 200
    steps, works = [], []
    for _ in range(40):
        started = time.perf_counter()
        step(0)
        between = time.perf_counter()
        for _ in range(many):
            torch.relu(matrix @ matrix)
        works.append((time.perf_counter() - between) / many)
        steps.append(between - started)
    lower_quarter = [statistics.quantiles(times, n=4)[0] for times in (steps, works)]  # what the load did not touch
    return max(1, round(fraction * lower_quarter[0] / lower_quarter[1]))


def record(kind: str, directory: str, extra: int) -> None:
    step = make_step(kind)
    for _ in range(WARM_UP):
        step(extra)
    end = time.monotonic() + SECONDS
    with profkit.profile(directory):
        while time.monotonic() < end:
            step(extra)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    if sys.argv[2] == "calibrate":
        print(calibrate(sys.argv[1], float(sys.argv[3])))
    else:
        record(sys.argv[1], sys.argv[2], int(sys.argv[3]))
