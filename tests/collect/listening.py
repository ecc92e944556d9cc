"""Somebody who is told of the ends of steps, and optimizers that make some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.program.guard import Guard


class Listener:
    """Counts the ends of steps; ``committed`` makes it refuse a new signal, ``deaf`` any."""

    def __init__(self) -> None:
        self.ends: list[bool] = []
        self.errors: list[BaseException] = []
        self.committed = self.deaf = self.lets_pass = False
        self.passed = self.outdone_times = 0
        self.missed: list[str] = []
        self.is_elsewhere = False
        self.signals = StepSignals(self, Guard(self.errors.append))

    def hears(self) -> bool:
        return not self.deaf

    def misses(self, name: str) -> bool:
        self.missed.append(name)
        return self.is_elsewhere

    def passes_by(self) -> bool:
        self.passed += self.lets_pass
        return self.lets_pass

    def is_committed(self) -> bool:
        return self.committed

    def outdone(self) -> None:
        self.outdone_times += 1

    def end_step(self, is_first: bool) -> None:
        torch.ops.aten.neg(torch.ones(1))
        self.ends.append(is_first)

    @contextmanager
    def on(self, only_explicit: bool = False) -> Iterator[StepSignals]:
        self.signals.install(only_explicit)
        try:
            yield self.signals
        finally:
            self.signals.remove()


def make_optimizer(kind: type[Any] = SGD, **options: Any) -> Optimizer:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    made: Optimizer = kind([parameter], lr=0.1, **options)
    return made
