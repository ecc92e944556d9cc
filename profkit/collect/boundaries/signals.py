"""The signals that show where a program's steps end if it does not announce them: steps of the optimizer, batches of a
DataLoader, its passes over the data, backward passes, and calls of the model.

All hooks are removed when the recording is over. None is on the stack while the program's own code runs, so its
tracebacks show no frame of profkit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from profkit.collect.boundaries.accumulation import has_living_optimizer
from profkit.collect.boundaries.backward_passes import BackwardPasses
from profkit.collect.boundaries.choice import BACKWARD, DATALOADER, FORWARD, OPTIMIZER, StepBoundary
from profkit.collect.boundaries.forwards import ForwardCalls
from profkit.collect.boundaries.hand_updates import HandUpdates
from profkit.collect.boundaries.optimizer_steps import OptimizerSteps, UpdateWatch
from profkit.collect.loaders.batches import LoaderBatches
from profkit.collect.loaders.feeding import FeedingWatch
from profkit.collect.loaders.sites import LoaderSites
from profkit.collect.loaders.worker_watch import WorkerWatch
from profkit.collect.program.guard import Guard
from profkit.run.directory import Feeding, LoaderUse, OptimizerUse
from profkit.run.plan import SIGNALS

_MOST_AHEAD = 8
"""The most batches to wait out: with more, a short program would have no steps left to measure."""


class LoaderWatches(NamedTuple):
    """What watches the DataLoaders: their workers, the lines that make them, their CPUs, and each batch as it comes."""

    workers: WorkerWatch | None = None
    sites: LoaderSites | None = None
    feeding: FeedingWatch | None = None
    on_given: Callable[[Any], None] | None = None


class StepSignals:
    """From `install` to `remove`, passes each signal, or only the ``chosen`` one, to ``tell`` as a `StepBoundary`.
    ``tell`` decides what it means. ``pass_by`` and ``watch`` are for the steps of optimizers (`OptimizerSteps`).
    ``ended_by`` is passed on besides. Without ``loaders`` nothing is described, and only what gives a signal is put
    into the program."""

    def __init__(
        self,
        tell: Callable[[StepBoundary], object],
        guard: Guard,
        chosen: str | None = None,
        pass_by: Callable[[], int] | None = None,
        watch: UpdateWatch | None = None,
        loaders: LoaderWatches | None = None,
        ended_by: str | None = None,
    ) -> None:
        watches = LoaderWatches() if loaders is None else loaders
        self._tell, self._chosen, self._workers, self._feeding = tell, chosen, watches.workers, watches.feeding
        self._describes = loaders is not None
        on_step = self._on_optimizer_step if chosen in (None, OPTIMIZER) or ended_by == OPTIMIZER else None
        self._optimizer = OptimizerSteps(on_step, guard, pass_by, watch)
        on_batch, on_epoch = self._on_batch, partial(self._give, SIGNALS["epoch"])
        self._loader = LoaderBatches(on_batch, on_epoch, guard, *watches[1:])
        self._backwards = BackwardPasses(partial(self._give, BACKWARD), guard, chosen == BACKWARD)
        self._by_hand = HandUpdates(lambda: guard(self._on_gradient), chosen == FORWARD)
        self._forwards = ForwardCalls(partial(self._give, FORWARD), guard, self._by_hand)
        self._batches_count: bool | None = None
        self._gradients_count: bool | None = None

    @property
    def loaders(self) -> tuple[LoaderUse, ...]:
        """The DataLoaders that were asked for a batch since `forget_uses`."""
        return tuple(replace(use, asked_ns=asked_ns) for use, asked_ns in self._loader.uses.items())

    @property
    def feeding(self) -> Feeding | None:
        """How many CPUs loading and computing kept busy, if counted."""
        return None if self._feeding is None else self._feeding.feeding

    @property
    def workers_ended(self) -> str:
        """Why not all workers were watched; empty if all were."""
        return "" if self._workers is None else self._workers.ended

    @property
    def optimizers(self) -> tuple[OptimizerUse, ...]:
        """The optimizers that stepped since `forget_uses`."""
        return tuple(self._optimizer.uses)

    @property
    def batches_ahead(self) -> int:
        """The most batches that the workers of one DataLoader hold ready, capped."""
        return min(self._loader.ahead, _MOST_AHEAD)

    def forget_uses(self) -> None:
        self._loader.uses.clear()
        self._optimizer.forget_uses()

    def install(self) -> None:
        if self._describes or self._chosen in (None, OPTIMIZER):
            self._optimizer.install()
        if self._describes or self._chosen in (None, DATALOADER, SIGNALS["epoch"]):
            self._loader.install()
        if self._workers is not None:
            self._workers.install()
        if self._chosen in (None, BACKWARD):
            self._backwards.install()
        if self._chosen in (None, FORWARD, BACKWARD):
            self._by_hand.install()
        if self._chosen == FORWARD:
            self._forwards.install()
        if self._chosen == BACKWARD:
            self._by_hand.tell()

    def listen_to_forwards(self) -> None:
        """Accept calls of the model as signals too, and gradients of a program that calls no model."""
        self._forwards.install()
        self._by_hand.tell()

    def remove(self) -> None:
        self._optimizer.remove()
        self._loader.remove()
        self._backwards.remove()
        self._forwards.remove()
        self._by_hand.remove()
        if self._workers is not None:
            self._workers.remove()

    def skip_none(self) -> None:
        """Make each step of the optimizer a signal again, even if `pass_by` has counted some ahead."""
        self._optimizer.skip_none()

    def follow(self, earlier: StepSignals) -> None:
        """What ended the steps of this thread ``earlier`` ends those that follow: the same optimizer, or the batches of
        the same data."""
        self._optimizer.follow(earlier._optimizer)
        self._loader.follow(earlier._loader)

    def forget_first(self) -> None:
        """Forget which optimizer stepped first: one on another thread may be the program's."""
        self._optimizer.forget_first()

    def _on_gradient(self) -> None:
        """`torch.autograd.grad` is looked up. Where nothing better comes this ends a step: samplers and programs that
        write their models as functions have no other sign of one. Not the first time: Python has yet to work out what
        to differentiate, and may call a model for it."""
        if self._gradients_count is None:
            self._gradients_count = not has_living_optimizer()
        elif self._gradients_count and not (self._forwards.has_called or self._backwards.has_passed):
            self._give(BACKWARD)

    def _give(self, signal: str) -> None:
        self._tell(StepBoundary.here(signal))

    def _on_optimizer_step(self, is_successor: bool) -> None:
        self._backwards.remove()  # it need not look for optimizers any more
        self._tell(StepBoundary.here(OPTIMIZER, is_successor=is_successor))

    def _on_batch(self, asked_before: int) -> None:
        if asked_before >= 1 and self._batches_count is None:
            self._batches_count = self._chosen == DATALOADER or not has_living_optimizer()
        if self._batches_count:
            self._give(DATALOADER)
