"""Gradient accumulation: a program's step is not over while gradients wait for the optimizer."""

from __future__ import annotations

import weakref

from torch._C import TensorBase
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import Optimizer

from profkit.collect.machine.patience import Patience
from profkit.collect.program.living import living
from profkit.source.attributes import attributes_of

PATIENCE_S = 30.0
"""How long to wait for the optimizer to step: as long as the prologue may last."""
_MOST_LOOKS = 3
"""How many times to look for optimizers before giving up."""


class Accumulation:
    """Compares the gradient memory that an optimizer holds at one call with what it held at the last.

    This keeps no gradient alive.
    """

    def __init__(self) -> None:
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._looks = 0
        self._patience: Patience | None = None
        self._before: StorageWeakRef | None = None

    def goes_on(self) -> bool:
        """Whether the program is still adding up gradients: the memory is the same, or there is some for the first
        time. After `PATIENCE_S` the answer is no."""
        self._patience = self._patience or Patience(PATIENCE_S)
        if self._patience.is_over():
            return False
        before, held = self._look()
        return held is not None and (before is None or bool(held == before))

    def was_dropped(self) -> bool | None:
        """Whether the gradient of the last call has made room for another; None if either held none."""
        before, held = self._look()
        return None if before is None or held is None else bool(held != before)

    def _look(self) -> tuple[StorageWeakRef | None, StorageWeakRef | None]:
        """The memory at the last call that found some, and now."""
        if not self._optimizers and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._optimizers = [weakref.ref(one) for one in living(Optimizer)]
        held = next((found for one in self._optimizers if (found := _find_gradient(one()))), None)
        before, self._before = self._before, self._before if held is None else held
        return before, held


def has_living_optimizer() -> bool:
    """Whether any optimizer is alive."""
    return bool(living(Optimizer))


def _find_gradient(optimizer: Optimizer | None) -> StorageWeakRef | None:
    """The memory of the first dense gradient that the optimizer would use, if it has one."""
    groups = attributes_of(optimizer).get("param_groups", ()) if optimizer else ()  # none yet while its __init__ runs
    for group in groups:
        for parameter in group["params"]:
            if parameter.grad is not None and not parameter.grad.is_sparse:
                return StorageWeakRef(TensorBase.untyped_storage(parameter.grad))  # type: ignore[no-untyped-call]  # torch's
    return None
