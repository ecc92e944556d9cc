"""Gradients that wait for an optimizer: a program that accumulates them has not come to the end of its step."""

from __future__ import annotations

import time
import weakref

from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import Optimizer

from profkit.collect.program.living import living

PATIENCE_S = 30.0
"""For how long a step of an optimizer is waited for: as long as the prologue may last that came before."""
_MOST_LOOKS = 3
"""How often the optimizers are looked for, where there are none."""


class Accumulation:
    """Whether an optimizer's gradients are still those of the call before: what is added up, nothing has taken yet.

    The first ones that are seen may be. No gradient is kept alive for it. After `PATIENCE_S` none is waited for.
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
    """All that are alive; looks through the garbage collector's list once."""
    return living(Optimizer)


def _find_gradient(optimizer: Optimizer | None) -> StorageWeakRef | None:
    """The memory of the first gradient that the optimizer would take; None where there is none."""
    groups = vars(optimizer).get("param_groups", ()) if optimizer else ()  # one that is being made has no groups yet
    for group in groups:
        for parameter in group["params"]:
            if parameter.grad is not None and not parameter.grad.is_sparse:
                return StorageWeakRef(parameter.grad.untyped_storage())  # type: ignore[no-untyped-call]  # torch's
    return None
