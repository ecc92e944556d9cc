"""Where a step of the program ends, when nothing says so: after the optimizer's step, at each batch, or after each call
of the model; where the user chooses so, at each new pass over the DataLoader.

Everything here is removed without a trace when the recording is over, and nothing here stands on the program's stack
while its own code runs, so that a traceback of the program shows no frame of profkit's.
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from torch.optim.optimizer import Optimizer, _global_optimizer_pre_hooks, register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from profkit.collect.accumulation import Accumulation, living_optimizers
from profkit.collect.batches import LoaderBatches
from profkit.collect.engine import in_backward_pass
from profkit.collect.forwards import ForwardCalls
from profkit.collect.guard import Guard, uncompiled
from profkit.collect.loader_sites import LoaderSites
from profkit.collect.plan import EXPLICIT
from profkit.collect.workers import WorkerWatch
from profkit.run import LoaderUse, OptimizerUse

OnStep = Callable[[], None]
_STRENGTH = {None: 0, "forward": 1, "dataloader": 2, "optimizer": 3, EXPLICIT: 4}
"""A pass over the DataLoader is not among them: where there is one there are batches, which say more."""
_MOST_AHEAD = 8
"""Batches that are waited out: more steps would cost a short program its measured ones."""
_AFTERWARDS = "profkit"
"""Key under which the optimizer's wrapper carries what is to happen when it returns."""


class StepListener(Protocol):
    """Who is told of the ends of steps."""

    def hears(self) -> bool:
        """Whether a signal that comes now, on this thread, can end a step."""

    def misses(self, name: str) -> bool:
        """The signal ``name`` comes, and cannot end a step; whether because of the thread that it comes on."""

    def passes_by(self) -> bool:
        """`end_step` of a step that passes before anything is recorded, by the signal that ended the last ones, in a
        third of the time; False for any other, of which nothing is done."""

    def is_committed(self) -> bool:
        """Whether steps were recorded already, so that a better signal comes too late."""

    def end_step(self, is_first: bool) -> None:
        """A step ended; ``is_first`` says that a stronger signal was found, and the steps before were none."""

    def outdone(self) -> None:
        """The optimizer stepped, too late: steps that ended otherwise were recorded already."""


class OptimizerSteps:
    """Calls ``on_step`` after each step of the optimizer that stepped first, and describes all that step.

    With several optimizers (a GAN) a step of the program holds one step of each; with gradient accumulation it holds
    several batches. ``passes_by`` is asked first, if it is set: where it answers True that was all. About so many steps
    as are to be ``skipped`` it is not even asked.
    """

    def __init__(self, on_step: OnStep, guard: Guard) -> None:
        self._on_step, self._guard = on_step, guard
        self.uses: dict[OptimizerUse, None] = {}
        self._described: set[int] = set()
        self._first: weakref.ref[Optimizer] | None = None
        self._ends_steps = True
        self.passes_by: Callable[[], bool] | None = None
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


class StepSignals:
    """Decides which of all signals end the program's steps, and tells the listener of those."""

    def __init__(
        self,
        listener: StepListener,
        guard: Guard,
        workers: WorkerWatch | None = None,
        sites: LoaderSites | None = None,
    ) -> None:
        self.name: str | None = None
        self._listener, self._workers = listener, workers
        self._optimizer = OptimizerSteps(lambda: self.give("optimizer"), guard)
        self._loader = LoaderBatches(self._on_batch, lambda: self.give("epoch"), guard, sites)
        self._forwards = ForwardCalls(self._on_forward, guard)
        self._accumulation = Accumulation()
        self._batches_count: bool | None = None
        self._chosen: str | None = None
        self._every, self._ends = 1, 0

    @property
    def is_weak(self) -> bool:
        """Whether the steps are no more than calls of the model, of which the program's beginning may hold as many."""
        return self.name == "forward"

    @property
    def may_be_outdone(self) -> bool:
        """Whether the steps are calls of the model or batches, for want of an optimizer that steps."""
        return self._chosen is None and self.name in ("forward", "dataloader")

    @property
    def chosen(self) -> str | None:
        """The one signal that counts; None where the best one does."""
        return self._chosen

    @property
    def is_missing(self) -> bool:
        """Whether only one signal counts, which never came."""
        return self._chosen is not None and self.name is None

    @property
    def loaders(self) -> tuple[LoaderUse, ...]:
        """The DataLoaders asked for a batch since `forget_uses`."""
        return tuple(self._loader.uses)

    @property
    def optimizers(self) -> tuple[OptimizerUse, ...]:
        """The optimizers that stepped since `forget_uses`."""
        return tuple(self._optimizer.uses)

    @property
    def batches_ahead(self) -> int:
        """The most batches that the workers of a DataLoader hold ready, up to a bound."""
        return min(self._loader.ahead, _MOST_AHEAD)

    def forget_uses(self) -> None:
        self._loader.uses.clear()
        self._optimizer.forget_uses()

    def install(self, has_begun: bool, chosen: str | None = None, every: int = 1) -> None:
        """Listen; to nothing but ``chosen``, where that is given. Where a step ``has_begun`` already, the signals end
        that one: calls of `step` do where nothing is chosen. It takes ``every`` so many to end a step."""
        self._every, self._ends = every, 0
        self._chosen = chosen or (EXPLICIT if has_begun else None)
        self.name = self._chosen if has_begun else None
        self._let_pass_by()
        self._optimizer.install(ends_steps=self._chosen in (None, "optimizer"))
        self._loader.install()
        if self._workers is not None:
            self._workers.install()
        if chosen == "forward":
            self._forwards.install()

    def listen_to_forwards(self) -> None:
        """Take calls of the model for steps as well: nothing better came for long."""
        if self.name is None and self._chosen is None:
            self._forwards.install()

    def remove(self) -> None:
        self._optimizer.remove()
        self._loader.remove()
        self._forwards.remove()
        if self._workers is not None:
            self._workers.remove()

    def give(self, name: str) -> None:
        """The signal ``name`` came. A weaker one than before says nothing, and so does any new one once committed; one
        that comes within a backward pass, as of an optimizer that steps in hooks, says nothing of where a step ends."""
        if in_backward_pass() or self._chosen not in (None, name):
            return
        if not self._listener.hears():
            if self._listener.misses(name):
                self._optimizer.forget_first()
            return
        if name == self.name:
            self._ends += 1
            if self._ends % self._every == 0:
                self._listener.end_step(is_first=False)
        elif self._is_better(name) and not self._listener.is_committed():
            self.name = name
            self._let_pass_by()
            self._listener.end_step(is_first=True)
        elif name == "optimizer" and self.may_be_outdone:
            self._listener.outdone()

    def skip(self, steps: int) -> None:
        """So many steps of the optimizer that may pass by do so without the listener being asked."""
        self._optimizer.skipped = steps

    def _let_pass_by(self) -> None:
        """The optimizer's steps may pass by, without more ado, where each of them ends a step."""
        self.skip(0)
        is_each = self.name == "optimizer" and self._every == 1
        self._optimizer.passes_by = self._listener.passes_by if is_each else None

    def _is_better(self, name: str) -> bool:
        return name == self._chosen or _STRENGTH.get(name, 0) > _STRENGTH[self.name]

    def _on_batch(self, asked_before: int) -> None:
        if asked_before >= 1 and self._batches_count is None:
            self._batches_count = self._chosen == "dataloader" or not living_optimizers()
        if self._batches_count:
            self.give("dataloader")

    def _on_forward(self) -> None:
        """A call whose gradients wait for an optimizer ends no step, until one that ended by a call is recorded."""
        may_wait = self._chosen is None and self.name in (None, "forward") and not self._listener.is_committed()
        if not (may_wait and self._accumulation.goes_on()):
            self.give("forward")


def _describe_optimizer(optimizer: Optimizer) -> OptimizerUse:
    return OptimizerUse(
        name=type(optimizer).__name__,
        foreach=_as_bool(optimizer.defaults.get("foreach")),
        fused=_as_bool(optimizer.defaults.get("fused")),
        parameters=sum(len(group["params"]) for group in optimizer.param_groups),
    )


def _as_bool(value: object) -> bool | None:
    return None if value is None else bool(value)
