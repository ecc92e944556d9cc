"""A listener that is told where steps end, and optimizers that end some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from profkit.collect.boundaries.choice import SignalChoice, StepBoundary, Verdict
from profkit.collect.boundaries.signals import LoaderWatches, StepSignals
from profkit.collect.program.guard import Guard


class Listener:
    """Counts the ends of steps. If ``committed`` it refuses a new signal, if ``deaf`` any. ``passes`` is how many steps
    of the optimizer it lets pass at the next one."""

    def __init__(self, chosen: str | None = None, has_begun: bool = False, is_replacement: bool = False) -> None:
        self.ends: list[bool] = []
        self.errors: list[BaseException] = []
        self.committed = self.deaf = False
        self.passes = self.passed = self.outdone_times = 0
        self.choice = SignalChoice(chosen, has_begun, is_replacement=is_replacement)
        guard, described = Guard(self.errors.append), LoaderWatches()
        self.signals = StepSignals(self.take, guard, self.choice.chosen, self.pass_by, loaders=described)

    @property
    def name(self) -> str | None:
        return self.choice.name

    def give(self, signal: str) -> None:
        self.take(StepBoundary.here(signal))

    def take(self, boundary: StepBoundary) -> None:
        if self.deaf or not self.choice.counts(boundary, self.committed):
            return
        verdict = self.choice.judge(boundary, self.committed)
        self.outdone_times += verdict is Verdict.OUTDONE
        if verdict in (Verdict.ENDS, Verdict.FIRST):
            torch.ops.aten.neg(torch.ones(1))
            self.ends.append(verdict is Verdict.FIRST)

    def pass_by(self) -> int:
        self.passed += self.passes > 0
        return self.passes

    def on(self) -> AbstractContextManager[StepSignals]:
        return installed(self.signals)


@contextmanager
def installed(signals: StepSignals) -> Iterator[StepSignals]:
    signals.install()
    try:
        yield signals
    finally:
        signals.remove()


def make_optimizer(kind: type[Any] = SGD, **options: Any) -> Optimizer:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    made: Optimizer = kind([parameter], lr=0.1, **options)
    return made
