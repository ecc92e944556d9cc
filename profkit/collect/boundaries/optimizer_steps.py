"""Where the steps of the program's optimizers end, and what these optimizers are."""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import Optimizer, _global_optimizer_pre_hooks, register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from profkit.collect.program.guard import Guard, uncompiled
from profkit.run import OptimizerUse

OnStep = Callable[[], None]
_AFTERWARDS = "profkit"
"""Key under which the optimizer's wrapper carries what is to happen when it returns."""


class OptimizerSteps:
    """Calls ``on_step`` after each step of the optimizer that stepped first, and describes all that step.

    With several optimizers (a GAN) a step of the program holds one step of each; with gradient accumulation it holds
    several batches. ``passes_by`` is asked first, if it is set: where it answers True that was all. About so many steps
    as are to be ``skipped`` it is not even asked. Else ``watch``, if it is set, is told of each optimizer's step.
    """

    def __init__(self, on_step: OnStep, guard: Guard) -> None:
        self._on_step, self._guard = on_step, guard
        self.uses: dict[OptimizerUse, None] = {}
        self._described: set[int] = set()
        self._first: weakref.ref[Optimizer] | None = None
        self._ends_steps = True
        self.passes_by: Callable[[], bool] | None = None
        self.watch: Callable[[Optimizer], None] | None = None
        self.skipped = 0
        self._skips = 0
        self._handle: RemovableHandle | None = None

    def install(self, ends_steps: bool = True) -> None:
        """Where they end no steps, the optimizers are described and nothing else."""
        self._ends_steps = ends_steps
        self._handle = register_optimizer_step_post_hook(self._after_step)

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def forget_uses(self) -> None:
        self.uses.clear()
        self._described.clear()

    def forget_first(self) -> None:
        """It steps on a thread whose steps do not count: another one may be the program's."""
        self._first = None

    @uncompiled
    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG002  # torch's signature
        if self.skipped > 0 and id(optimizer) == self._skips:
            self.skipped -= 1
            return
        try:
            first = self._first
            if self.passes_by is not None and first is not None and first() is optimizer and self.passes_by():
                self._skips = id(optimizer)
                return
        except Exception:  # noqa: S110  # the other way meets it again, and tells
            pass
        if (watch := self.watch) is not None:
            self._guard(lambda: watch(optimizer))
        if self._ends_steps or id(optimizer) not in self._described:
            self._guard(lambda: self._note_step(optimizer, kwargs))

    def _note_step(self, optimizer: Optimizer, kwargs: dict[str, Any]) -> None:
        if id(optimizer) not in self._described:  # it takes as long as all the rest
            self.uses[_describe_optimizer(optimizer)] = None
            self._described.add(id(optimizer))
        if not self._ends_steps:
            return
        first = self._first() if self._first is not None else None
        if first is None:
            self._first = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        if _global_optimizer_pre_hooks or optimizer._optimizer_step_pre_hooks:
            self._on_step()  # a pre-hook may have put a dict of the program's in the place of ``kwargs``
        else:
            kwargs[_AFTERWARDS] = _WhenDropped(lambda: self._guard(self._on_step))


class _WhenDropped:
    """Calls ``action`` when the wrapper of the optimizer's step drops its arguments, which is when it returns.

    The hook itself runs inside the wrapper's own range in the trace; a step that ended there would cross that range.
    """

    def __init__(self, action: OnStep) -> None:
        self._action = action

    @uncompiled
    def __del__(self) -> None:
        try:
            self._action()
        except KeyboardInterrupt:  # a finalizer's exception is not raised: interrupt again, outside
            _thread.interrupt_main()


def _describe_optimizer(optimizer: Optimizer) -> OptimizerUse:
    return OptimizerUse(
        name=type(optimizer).__name__,
        foreach=_as_bool(optimizer.defaults.get("foreach")),
        fused=_as_bool(optimizer.defaults.get("fused")),
        parameters=sum(len(group["params"]) for group in optimizer.param_groups),
    )


def _as_bool(value: object) -> bool | None:
    return None if value is None else bool(value)
