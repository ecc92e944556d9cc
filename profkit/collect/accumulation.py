"""Gradients that wait for an optimizer: a program that accumulates them has not come to the end of its step."""

from __future__ import annotations

import gc
import time
import weakref

from torch.optim.optimizer import Optimizer

PATIENCE_S = 30.0
"""For how long a step of an optimizer is waited for: as long as the opening may last that came before."""
_MOST_LOOKS = 3
"""How often the optimizers are looked for, where there are none."""


class Accumulation:
    """Whether any optimizer that was alive when first asked holds gradients. After `PATIENCE_S` none is waited for."""

    def __init__(self) -> None:
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._looks = 0
        self._end: float | None = None

    def goes_on(self) -> bool:
        now = time.monotonic()
        self._end = self._end or now + PATIENCE_S
        if now > self._end:
            return False
        if not self._optimizers and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._optimizers = [weakref.ref(one) for one in living_optimizers()]
        return any(_holds_gradients(optimizer) for one in self._optimizers if (optimizer := one()) is not None)


def living_optimizers() -> list[Optimizer]:
    """All that are alive; looks through the garbage collector's list once."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Optimizer)]


def _holds_gradients(optimizer: Optimizer) -> bool:
    groups = vars(optimizer).get("param_groups") or ()  # one that is being made has none yet
    return any(parameter.grad is not None for group in groups for parameter in group["params"])
