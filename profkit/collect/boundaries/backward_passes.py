"""Backward passes: they end the steps of programs that update their weights by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from profkit.collect.boundaries.accumulation import Accumulation, has_living_optimizer
from profkit.collect.program.dropped import WhenDropped
from profkit.collect.program.guard import Guard, uncompiled

_NAME = "backward"
_LEAST = 2
"""Backward passes before they count: a program that differentiates once has no steps."""
_DROPPED = 3
"""Gradients that an optimizer was not asked to use before one dropped them. A scaler of mixed precision skips its first
steps, too, but from the optimizer's first step on only those count (`profkit.collect.boundaries.choice`)."""


class BackwardPasses:
    """Calls ``on_pass`` after each call of ``Tensor.backward``, from the second on, if the program has no optimizer by
    then. If it has one, its steps say more, and these passes may only be parts of them: they count only once gradients
    were dropped again and again without a step. A program may make an optimizer for ``zero_grad`` alone.

    Python looks the method up just before it calls it, so a descriptor in its place notices the call without being on
    the stack during the backward pass.
    """

    def __init__(self, on_pass: Callable[[], None], guard: Guard, is_chosen: bool) -> None:
        self._on_pass, self._guard, self._is_chosen = on_pass, guard, is_chosen
        self._passes = self._dropped = 0
        self._has_optimizer = False
        self._accumulation = Accumulation()
        self._installed: _NoticedMethod | None = None

    def install(self) -> None:
        if self._installed is None:
            self._installed = _NoticedMethod(Tensor.backward, partial(self._guard, self._note_pass))
            setattr(Tensor, _NAME, self._installed)

    def remove(self) -> None:
        installed, self._installed = self._installed, None
        if installed is not None and vars(Tensor)[_NAME] is installed:  # else the program has replaced it
            setattr(Tensor, _NAME, installed.method)

    @property
    def has_passed(self) -> bool:
        """Whether a tensor's `backward` was called."""
        return self._passes > 0

    def _note_pass(self) -> None:
        if self._installed is None:
            return
        self._passes += 1
        if self._passes == _LEAST and not self._is_chosen:
            self._has_optimizer = has_living_optimizer()
        if self._has_optimizer and self._dropped < _DROPPED:
            self._wait_for_optimizer()
        elif self._passes >= _LEAST or self._is_chosen:
            self._on_pass()

    def _wait_for_optimizer(self) -> None:
        """Its step would remove this (`StepSignals`); so do gradients that wait for it."""
        was_dropped = self._accumulation.was_dropped()
        if was_dropped is False or (was_dropped is None and self._passes > _LEAST):
            self.remove()
        elif was_dropped:
            self._dropped += 1


class _NoticedMethod:
    """Stands in for a class's ``method``, and calls ``after`` when a call on an instance is over."""

    def __init__(self, method: Any, after: Callable[[], None]) -> None:
        self.method, self._after = method, after

    @uncompiled
    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        if instance is None:
            return self.method
        bound: Any = partial(self.method, instance)
        bound.ends = WhenDropped(self._after)  # Python drops what it has called when the call is over
        return bound
