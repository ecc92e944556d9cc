"""Which of all signals ends the program's steps."""

from __future__ import annotations

from enum import Enum, auto

from profkit.collect.boundaries.accumulation import Accumulation, living_optimizers
from profkit.collect.boundaries.step_boundary import StepBoundary
from profkit.collect.program.engine import in_backward_pass
from profkit.plan import EXPLICIT, SIGNALS

OPTIMIZER, DATALOADER, FORWARD = SIGNALS["optimizer"], SIGNALS["dataloader"], SIGNALS["forward"]
_STRENGTH = {None: 0, FORWARD: 1, DATALOADER: 2, OPTIMIZER: 3, EXPLICIT: 4}
"""A pass over the DataLoader is not among them: where there is one there are batches, which say more."""


class Verdict(Enum):
    """What a boundary means: nothing, the end of a step, the end of the ``FIRST`` one by a better signal (the steps
    before were none), or that a better signal came when steps by a weaker one were recorded already."""

    NOTHING = auto()
    ENDS = auto()
    FIRST = auto()
    OUTDONE = auto()


class SignalChoice:
    """``name`` is the signal that ends the steps, as soon as there is one: the best that came so far, or nothing but
    what was ``chosen``. Where a step ``has_begun`` already, the signal ends that one: calls of `step` do where nothing
    is chosen. It takes ``every`` so many to end a step. What was chosen as ``is_replacement`` for a weaker signal, by
    nobody but profkit, gives way to `step` too: ``outdone_by`` names what came too late. ``is_each_update`` says that
    each step of the optimizer ends one of the program's; it is asked at each of them.
    """

    def __init__(
        self, chosen: str | None = None, has_begun: bool = False, every: int = 1, is_replacement: bool = False
    ) -> None:
        self.chosen = chosen or (EXPLICIT if has_begun else None)
        self.outdone_by: str | None = None
        self._every, self._ends, self._is_replacement = every, 0, is_replacement
        self._take(self.chosen if has_begun else None)
        self._accumulation = Accumulation()

    def counts(self, boundary: StepBoundary, is_committed: bool) -> bool:
        """Whether the boundary may be one. What comes within a backward pass, as of an optimizer that steps in hooks,
        says nothing of where a step ends. Neither does a call of the model whose gradients wait for an optimizer,
        until a step that ended by a call is recorded (``is_committed``)."""
        signal = boundary.signal
        may_wait = signal == FORWARD and self.chosen is None and self.name in (None, FORWARD) and not is_committed
        if may_wait and self._accumulation.goes_on():
            return False
        return not in_backward_pass() and (self.chosen in (None, signal) or self._outdoes(signal))

    def judge(self, boundary: StepBoundary, is_committed: bool) -> Verdict:
        """What a boundary that `counts`, and is heard, means. A weaker signal than before says nothing; once committed,
        a better one ends the recording, which is begun anew."""
        signal = boundary.signal
        if signal == self.name:
            self._ends += 1
            return Verdict.ENDS if self._ends % self._every == 0 else Verdict.NOTHING
        if self.chosen in (None, signal) and self._is_better(signal) and not is_committed:
            self._take(signal)
            return Verdict.FIRST
        if self._outdoes(signal):
            self.outdone_by = signal
            return Verdict.OUTDONE
        return Verdict.NOTHING

    def begin_anew(self) -> None:
        """The steps so far were none: they ended on a thread that is recorded no more."""
        self._ends = 0
        self._take(None)

    def _take(self, signal: str | None) -> None:
        self.name = signal
        self.is_each_update = signal == OPTIMIZER and self._every == 1

    @property
    def is_open(self) -> bool:
        """Whether no signal came so far, and any may."""
        return self.name is None and self.chosen is None

    @property
    def is_weak(self) -> bool:
        """Whether the steps are no more than calls of the model, of which the program's beginning may hold as many."""
        return self.name == FORWARD

    @property
    def may_be_outdone(self) -> bool:
        """Whether the steps are calls of the model or batches, for want of an optimizer that steps."""
        return self.chosen is None and self.name in (FORWARD, DATALOADER)

    @property
    def awaits_optimizer(self) -> bool:
        """Whether that optimizer is there."""
        return self.may_be_outdone and bool(living_optimizers())

    @property
    def gives_way(self) -> bool:
        """Whether the steps are none that the program announces, and nobody chose them: if it does announce one, that
        is what its steps are."""
        return self.name not in (None, EXPLICIT) and (self.chosen is None or self._is_replacement)

    @property
    def is_missing(self) -> bool:
        """Whether only one signal counts, which never came."""
        return self.chosen is not None and self.name is None

    def _outdoes(self, signal: str) -> bool:
        return self.gives_way if signal == EXPLICIT else signal == OPTIMIZER and self.may_be_outdone

    def _is_better(self, signal: str) -> bool:
        return signal == self.chosen or _STRENGTH.get(signal, 0) > _STRENGTH[self.name]
