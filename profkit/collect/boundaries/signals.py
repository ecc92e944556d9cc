"""Where a step of the program ends, when nothing says so: after the optimizer's step, at each batch, or after each call
of the model; where the user chooses so, at each new pass over the DataLoader.

Everything here is removed without a trace when the recording is over, and nothing here stands on the program's stack
while its own code runs, so that a traceback of the program shows no frame of profkit's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace
from torch.optim.optimizer import Optimizer

from profkit.collect.boundaries.accumulation import Accumulation, living_optimizers
from profkit.collect.boundaries.forwards import ForwardCalls
from profkit.collect.boundaries.optimizer_steps import OptimizerSteps
from profkit.collect.loaders.batches import LoaderBatches
from profkit.collect.loaders.feeding import FeedingWatch
from profkit.collect.loaders.sites import LoaderSites
from profkit.collect.loaders.worker_watch import WorkerWatch
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard
from profkit.plan import EXPLICIT
from profkit.run import Feeding, LoaderUse, OptimizerUse

_STRENGTH = {None: 0, "forward": 1, "dataloader": 2, "optimizer": 3, EXPLICIT: 4}
"""A pass over the DataLoader is not among them: where there is one there are batches, which say more."""
_MOST_AHEAD = 8
"""Batches that are waited out: more steps would cost a short program its measured ones."""


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
        """A better signal came, too late: steps that ended otherwise were recorded already."""


class StepSignals:
    """Decides which of all signals end the program's steps, and tells the listener of those."""

    def __init__(
        self,
        listener: StepListener,
        guard: Guard,
        workers: WorkerWatch | None = None,
        sites: LoaderSites | None = None,
        feeding: FeedingWatch | None = None,
    ) -> None:
        self.name: str | None = None
        self._listener, self._workers, self._feeding = listener, workers, feeding
        self._optimizer = OptimizerSteps(lambda: self.give("optimizer"), guard)
        self._loader = LoaderBatches(self._on_batch, lambda: self.give("epoch"), guard, sites, feeding)
        self._forwards = ForwardCalls(self._on_forward, guard)
        self._accumulation = Accumulation()
        self._batches_count: bool | None = None
        self._chosen: str | None = None
        self._every, self._ends = 1, 0
        self._is_replacement = False
        self.outdone_by: str | None = None

    @property
    def is_weak(self) -> bool:
        """Whether the steps are no more than calls of the model, of which the program's beginning may hold as many."""
        return self.name == "forward"

    @property
    def may_be_outdone(self) -> bool:
        """Whether the steps are calls of the model or batches, for want of an optimizer that steps."""
        return self._chosen is None and self.name in ("forward", "dataloader")

    @property
    def awaits_optimizer(self) -> bool:
        """Whether that optimizer is there."""
        return self.may_be_outdone and bool(living_optimizers())

    @property
    def gives_way(self) -> bool:
        """Whether the steps are none that the program announces, and nobody chose them: if it does announce one, that
        is what its steps are."""
        return self.name not in (None, EXPLICIT) and (self._chosen is None or self._is_replacement)

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
        return tuple(replace(use, asked_ns=asked_ns) for use, asked_ns in self._loader.uses.items())

    @property
    def feeding(self) -> Feeding | None:
        """How many CPUs loading and computing kept busy, where that was counted."""
        return None if self._feeding is None else self._feeding.feeding

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

    def install(
        self, has_begun: bool, chosen: str | None = None, every: int = 1, is_replacement: bool = False
    ) -> None:
        """Listen; to nothing but ``chosen``, where that is given. Where a step ``has_begun`` already, the signals end
        that one: calls of `step` do where nothing is chosen. It takes ``every`` so many to end a step. What was chosen
        as ``is_replacement`` for a weaker signal, by nobody but profkit, gives way to `step` too."""
        self._every, self._ends = every, 0
        self._is_replacement, self.outdone_by = is_replacement, None
        self._chosen = chosen or (EXPLICIT if has_begun else None)
        self.name = self._chosen if has_begun else None
        self._let_pass_by()
        self._optimizer.install(ends_steps=self._chosen in (None, "optimizer"))
        self._loader.install()
        if self._workers is not None:
            self._workers.install()
        if chosen == "forward":
            self._forwards.install()

    def watch_optimizers(self, watch: Callable[[Optimizer], None] | None) -> None:
        """Tell ``watch`` of each step of any optimizer, from here on."""
        self._optimizer.watch = watch

    def begin_anew(self) -> None:
        """The steps so far were none: they ended on a thread that is recorded no more."""
        self.name, self._ends = None, 0
        self._let_pass_by()
        self._optimizer.forget_first()

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
        """The signal ``name`` came. A weaker one than before says nothing; once committed, a better one ends the
        recording, which is begun anew. One that comes within a backward pass, as of an optimizer that steps in hooks,
        says nothing of where a step ends."""
        outdoes = self.gives_way if name == EXPLICIT else name == "optimizer" and self.may_be_outdone
        if in_backward_pass() or not (outdoes or self._chosen in (None, name)):
            return
        if not self._listener.hears():
            if self._listener.misses(name):
                self._optimizer.forget_first()
            return
        if name == self.name:
            self._ends += 1
            if self._ends % self._every == 0:
                self._listener.end_step(is_first=False)
        elif self._chosen in (None, name) and self._is_better(name) and not self._listener.is_committed():
            self.name = name
            self._let_pass_by()
            self._listener.end_step(is_first=True)
        elif outdoes:
            self.outdone_by = name
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
