"""Where the steps of the program's optimizers end, and what these optimizers are."""

from __future__ import annotations

import _thread
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from torch.optim.optimizer import Optimizer, _global_optimizer_pre_hooks, register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from profkit.collect.program.guard import Guard, uncompiled
from profkit.run import OptimizerUse

OnStep = Callable[[], None]
_AFTERWARDS = "profkit"
"""Key in the keyword arguments of the optimizer's wrapper, under which it carries what to do when it returns."""


class UpdateWatch(Protocol):
    """Looks, while it ``is_on``, at what an optimizer leaves behind each step."""

    is_on: bool

    def look(self, optimizer: Optimizer, /) -> None: ...


class OptimizerSteps:
    """Describes the optimizers that step, and calls ``on_step`` after each step of the first one on its thread: with
    several (a GAN), a step of the program holds one step of each.

    ``pass_by`` is asked first. It answers how many steps of that optimizer are over: this one, and as many of the next
    as it need not be asked about; 0 means that this is a step like any other. ``watch``, while it is on, looks at each
    step of any optimizer that did not pass by.
    """

    def __init__(
        self,
        on_step: OnStep | None,
        guard: Guard,
        pass_by: Callable[[], int] | None,
        watch: UpdateWatch | None,
    ) -> None:
        self._on_step, self._guard, self._watch = on_step, guard, watch
        self._pass_by = pass_by if on_step is not None else None
        self.uses: dict[OptimizerUse, None] = {}
        self._described: set[int] = set()
        self._local = threading.local()  # its ``first`` is the optimizer that stepped first on the thread
        self._skipped = self._skips = 0
        self._handle: RemovableHandle | None = None

    def install(self) -> None:
        self._handle = register_optimizer_step_post_hook(self._after_step)

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def forget_uses(self) -> None:
        self.uses.clear()
        self._described.clear()

    def forget_first(self) -> None:
        """The steps so far do not count: another optimizer may be the program's."""
        self._local = threading.local()
        self.skip_none()

    def skip_none(self) -> None:
        self._skipped = 0

    @uncompiled
    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG002  # torch's signature
        if self._skipped > 0 and id(optimizer) == self._skips:
            self._skipped -= 1
            return
        try:
            if (pass_by := self._pass_by) is not None:
                first = getattr(self._local, "first", None)
                if first is not None and first() is optimizer and (passed := pass_by()):
                    self._skips, self._skipped = id(optimizer), passed - 1
                    return
        except Exception:  # noqa: S110  # the guarded way below meets it again
            pass
        if (watch := self._watch) is not None and watch.is_on:
            self._guard(lambda: watch.look(optimizer))
        if self._on_step is not None or id(optimizer) not in self._described:
            self._guard(lambda: self._note_step(optimizer, kwargs))

    def _note_step(self, optimizer: Optimizer, kwargs: dict[str, Any]) -> None:
        if id(optimizer) not in self._described:  # as slow as all the rest
            self.uses[_describe_optimizer(optimizer)] = None
            self._described.add(id(optimizer))
        if (on_step := self._on_step) is None:
            return
        first: weakref.ref[Optimizer] | None = getattr(self._local, "first", None)
        if first is None or first() is None:
            self._local.first = weakref.ref(optimizer)
        elif first() is not optimizer:
            return
        if _global_optimizer_pre_hooks or optimizer._optimizer_step_pre_hooks:
            on_step()  # a pre-hook may have replaced ``kwargs`` by a dict of the program's
        else:
            kwargs[_AFTERWARDS] = _WhenDropped(lambda: self._guard(on_step))


class _WhenDropped:
    """Calls ``action`` when the wrapper of the optimizer's step returns, and drops its arguments.

    The hook itself runs inside the wrapper's range in the trace, which a step that ended there would cross.
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
