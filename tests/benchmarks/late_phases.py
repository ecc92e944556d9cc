"""A program that imports PyTorch late, after work of its own; see `run_phases`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

TOOK = Counter[str]()


@contextmanager
def noted(phase: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    TOOK[phase] += time.perf_counter() - begun


def read_corpus() -> int:
    time.sleep(1.5)
    return sum(len(str(number)) for number in range(200_000))


def train() -> None:
    with noted("imports"):
        import torch
        import torch._dynamo  # the optimizer would import it in its first step
    with noted("before the first step"):
        time.sleep(0.7)
        model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with noted("steps"):
        for _ in range(50):
            time.sleep(0.04)
            optimizer.zero_grad()
            model(torch.randn(32, 64)).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    with noted("before the first step"):
        read_corpus()
    train()
    with noted("after the last step"):
        time.sleep(0.8)
    print(json.dumps(TOOK))
