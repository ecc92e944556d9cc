"""Gradients that wait for an optimizer: while a program accumulates them, its step is not over."""

from __future__ import annotations

import time
import weakref

from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import Optimizer

from profkit.collect.program.living import living

PATIENCE_S = 30.0
"""How long to wait for an optimizer's step: as long as the prologue before it may last."""
_MOST_LOOKS = 3
"""How often to look for optimizers while there are none."""


class Accumulation:
    """Tells whether gradients are still being added up: an optimizer's are those of the call before, or the first seen.

    No gradient is kept alive for that. After `PATIENCE_S` the answer is no.
    """

    def __init__(self) -> None:
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._looks = 0
        self._end: float | None = None
        self._before: StorageWeakRef | None = None

    def goes_on(self) -> bool:
        now = time.monotonic()
        self._end = self._end or now + PATIENCE_S
        if now > self._end:
            return False
        if not self._optimizers and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._optimizers = [weakref.ref(one) for one in living_optimizers()]
        held = next((found for one in self._optimizers if (found := _find_gradient(one()))), None)
        if held is None:
            return False
        before, self._before = self._before, held
        return before is None or bool(held == before)


def living_optimizers() -> list[Optimizer]:
    """All that are alive; goes through the garbage collector's list once."""
    return living(Optimizer)


def _find_gradient(optimizer: Optimizer | None) -> StorageWeakRef | None:
    """The memory of the first gradient that the optimizer would use, if it has one."""
    groups = vars(optimizer).get("param_groups", ()) if optimizer else ()  # one that is being made has no groups yet
    for group in groups:
        for parameter in group["params"]:
            if parameter.grad is not None and not parameter.grad.is_sparse:
                return StorageWeakRef(parameter.grad.untyped_storage())  # type: ignore[no-untyped-call]  # torch's
    return None
