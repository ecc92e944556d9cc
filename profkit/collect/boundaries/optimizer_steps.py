"""The steps of the program's optimizers, and descriptions of these optimizers."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Protocol

from torch.optim import optimizer as optimizers
from torch.optim.optimizer import Optimizer, _global_optimizer_pre_hooks
from torch.utils.hooks import RemovableHandle

from profkit.collect.program.dropped import WhenDropped
from profkit.collect.program.guard import Guard, uncompiled
from profkit.run.directory import OptimizerUse

OnStep = Callable[[bool], None]
"""Is told whether the optimizer has taken the place of another one."""
_TAKES_OVER = 30
"""So many steps in a row, in which the optimizer that stepped first makes none. Between two steps of a generator
critics make five (Wasserstein GANs); a program goes on to its next part for good."""
_AFTERWARDS = "profkit"
"""Key in the keyword arguments of the optimizer's wrapper; its value acts when the wrapper returns."""


class UpdateWatch(Protocol):
    """While it ``is_on``, looks at an optimizer after each of its steps."""

    is_on: bool

    def look(self, optimizer: Optimizer, /) -> None: ...


class OptimizerSteps:
    """Describes the optimizers that step, and calls ``on_step`` after each step of the one that stepped first on its
    thread: with several optimizers (a GAN), a step of the program holds one step of each. Another one takes its place
    if it no longer exists, or makes no more steps.

    ``pass_by`` is a shortcut and is called first. It returns how many steps of that optimizer it has counted: this one,
    and possibly some of the next, at which it is then not called. 0 means that this step takes the normal path. On that
    path ``watch``, while it is on, looks at each step of any optimizer.
    """

    _left: ClassVar[set[Callable[..., Any]]] = set()
    """Functions of removed ones that a later one still calls."""

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
        self._local = threading.local()  # ``first``: the optimizer that stepped first on this thread
        self._skipped = self._skips = self._first_steps = 0
        self._others: Counter[int] = Counter()  # the steps of others since the first one's last
        self._others_since = (0, 0)
        self._handle: RemovableHandle | None = None
        self._replaced = optimizers.register_optimizer_step_post_hook

    def install(self) -> None:
        register = optimizers.register_optimizer_step_post_hook
        self._handle = handle = register(self._after_step)

        @wraps(register)
        def register_before_this(hook: Callable[..., None]) -> RemovableHandle:
            """The program's hooks come first, so none of them sees what this object's puts into ``kwargs``."""
            added = register(hook)
            hooks = optimizers._global_optimizer_post_hooks
            if handle.id in hooks:
                hooks[handle.id] = hooks.pop(handle.id)
            return added

        optimizers.register_optimizer_step_post_hook = self._replaced = register_before_this

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
            OptimizerSteps._left.add(self._replaced)
            while (top := optimizers.register_optimizer_step_post_hook) in OptimizerSteps._left:
                OptimizerSteps._left.discard(top)
                optimizers.register_optimizer_step_post_hook = vars(top)["__wrapped__"]

    def forget_uses(self) -> None:
        self.uses.clear()
        self._described.clear()

    def follow(self, earlier: OptimizerSteps) -> None:
        """Go on with the optimizer that stepped first ``earlier`` on this thread: whichever steps next, such as the
        one that makes five steps for each of the other, may end longer or shorter steps."""
        first: weakref.ref[Optimizer] | None = getattr(earlier._local, "first", None)
        if first is not None:
            self._local.first = first

    def forget_first(self) -> None:
        """Ignore the steps so far: another optimizer may be the program's."""
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
                    self._first_steps += 1
                    return
        except Exception:  # noqa: S110  # the guarded path below raises it again
            pass
        if (watch := self._watch) is not None and watch.is_on:
            self._guard(lambda: watch.look(optimizer))
        if self._on_step is not None or id(optimizer) not in self._described:
            self._guard(lambda: self._note_step(optimizer, kwargs))

    def _note_step(self, optimizer: Optimizer, kwargs: dict[str, Any]) -> None:
        if id(optimizer) not in self._described:  # slow, so once per optimizer
            self.uses[_describe_optimizer(optimizer)] = None
            self._described.add(id(optimizer))
        if (on_step := self._on_step) is None:
            return
        first: weakref.ref[Optimizer] | None = getattr(self._local, "first", None)
        is_first = first is not None and first() is optimizer
        is_successor = first is not None and not is_first and (first() is None or self._takes_over(optimizer))
        if first is None or is_successor:
            self._local.first = weakref.ref(optimizer)
        elif not is_first:
            return
        self._first_steps += 1
        if _global_optimizer_pre_hooks or optimizer._optimizer_step_pre_hooks:
            on_step(is_successor)  # a pre-hook may have replaced ``kwargs`` with the program's own dict
        else:
            # The hook runs inside the wrapper's range in the trace: a step that ended here would cut that range in two.
            kwargs[_AFTERWARDS] = WhenDropped(lambda: self._guard(lambda: on_step(is_successor)))

    def _takes_over(self, optimizer: Optimizer) -> bool:
        """Another optimizer than the first makes a step: whether the first makes none any more."""
        since = self._first_steps, self._skipped  # another with each step of the first one
        if since != self._others_since:
            self._others.clear()
            self._others_since = since
        self._others[id(optimizer)] += 1
        return self._others[id(optimizer)] >= _TAKES_OVER


def _describe_optimizer(optimizer: Optimizer) -> OptimizerUse:
    return OptimizerUse(
        name=type(optimizer).__name__,
        foreach=_as_bool(optimizer.defaults.get("foreach")),
        fused=_as_bool(optimizer.defaults.get("fused")),
        parameters=sum(len(group["params"]) for group in optimizer.param_groups),
    )


def _as_bool(value: object) -> bool | None:
    return None if value is None else bool(value)
