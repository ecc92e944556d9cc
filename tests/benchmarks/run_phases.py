"""Programs of several styles that note how long each phase of their run takes, as the truth for `profkit watch`.

    python run_phases.py STYLE

The last line on stdout is JSON: seconds by phase.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, STEPS = 6, 8
TOOK = Counter[str]()


@contextmanager
def noted(phase: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    TOOK[phase] += time.perf_counter() - begun


class SlowFile(io.BytesIO):
    def write(self, data) -> int:
        time.sleep(0.002)
        return super().write(data)


class Samples(Dataset):
    def __len__(self) -> int:
        return STEPS * 2

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.randn(64)


def save(model: nn.Module) -> None:
    torch.save([parameter for parameter in model.parameters() for _ in range(20)], SlowFile())


def read_again() -> list[str]:
    return [json.dumps({"row": row, "values": list(range(20))}) for row in range(30_000)]


def make_model() -> nn.Module:
    time.sleep(0.7)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))


@torch.no_grad()
def score(model: nn.Module) -> float:
    total = 0.0
    for _ in range(12):
        time.sleep(0.02)
        total += float(model(torch.randn(32, 64)).sum())
    return total


def inline() -> None:
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(), batch_size=2)
    for _ in range(EPOCHS):
        with noted("between the epochs"):
            read_again()
        batches = iter(loader)
        for _ in range(STEPS):
            with noted("waiting for data"):
                batch = next(batches)
            with noted("steps"):
                time.sleep(0.02)
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
        with noted("evaluation"):
            score(model)
        with noted("checkpoints"):
            save(model)
    with noted("after the last step"):
        time.sleep(0.8)


class Trainer:
    def __init__(self) -> None:
        with noted("before the first step"):
            self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def fit(self) -> None:
        for epoch in range(EPOCHS):
            self.run_epoch(epoch)
            with noted("evaluation"):
                self.validate()
        with noted("after the last step"):
            time.sleep(0.8)

    def run_epoch(self, epoch: int) -> None:
        with noted("between the epochs"):
            rows = read_again()
        for step in range(STEPS):
            with noted("steps"):
                self.train_step(len(rows[step]))
        if epoch % 2:
            with noted("checkpoints"):
                self.checkpoint()

    def train_step(self, scale: int) -> None:
        batch = torch.randn(32, 64) / scale
        time.sleep(0.03)
        loss = self.model(batch).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def validate(self) -> None:
        self.model.eval()
        for _ in range(10):
            time.sleep(0.02)
            self.model(torch.randn(32, 64))
        self.model.train()

    def checkpoint(self) -> None:
        save(self.model)


def closures() -> None:
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def after_epoch(number: int) -> None:
        with noted("between the epochs"):
            read_again()
        with noted("checkpoints"):
            save(model)

    count = 0
    while count < EPOCHS * STEPS:
        for _ in range(STEPS):
            with noted("steps"):
                time.sleep(0.03)
                step(torch.randn(64, 64))
            count += 1
        after_epoch(count)
    with noted("after the last step"):
        time.sleep(0.8)


def inference() -> None:
    with noted("before the first step"):
        model = make_model()
    with torch.inference_mode():
        for _ in range(EPOCHS * STEPS):
            with noted("steps"):
                time.sleep(0.05)
                model(torch.randn(64, 64))
    with noted("after the last step"):
        time.sleep(0.8)


STYLES = {"inline": inline, "trainer": lambda: Trainer().fit(), "closures": closures, "inference": inference}

if __name__ == "__main__":
    STYLES[sys.argv[1]]()
    print(json.dumps(TOOK))
