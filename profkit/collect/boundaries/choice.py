"""Which signal ends the program's steps."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from threading import get_ident

from msgspec import Struct

from profkit.collect.boundaries.accumulation import Accumulation, has_living_optimizer
from profkit.collect.program.clocks import time
from profkit.collect.program.engine import in_backward_pass
from profkit.run.plan import EXPLICIT, SIGNALS

OPTIMIZER, DATALOADER, BACKWARD, FORWARD = (SIGNALS[one] for one in ("optimizer", "dataloader", "backward", "forward"))
_STRENGTH = {None: 0, FORWARD: 1, BACKWARD: 2, DATALOADER: 3, OPTIMIZER: 4, EXPLICIT: 5}
"""Passes over the DataLoader are missing on purpose: batches come with them and say more."""
_MOST_SUCCESSORS = 2
"""A program that makes an optimizer for each of many short parts is recorded from one to the next after that."""


class StepBoundary(Struct, frozen=True):
    """A place where a step of the program may have ended, reported by ``signal`` (one of `profkit.run.plan.SIGNALS`) on
    ``thread`` at ``time_ns`` (``time.perf_counter_ns``). The recorder calls ``between`` before the next step begins. It
    ``is_successor`` if the signal comes from another optimizer than before, which has taken its place."""

    signal: str
    thread: int
    time_ns: int
    between: Callable[[], None] | None = None
    is_successor: bool = False

    @classmethod
    def here(cls, signal: str, between: Callable[[], None] | None = None, is_successor: bool = False) -> StepBoundary:
        """A boundary on this thread, now."""
        return cls(signal, get_ident(), time.perf_counter_ns(), between, is_successor)


class Verdict(Enum):
    """What a boundary means. ``FIRST``: a better signal came, or another optimizer, so the steps so far do not count
    and the first one ends here. ``OUTDONE``: the same, but earlier steps are already recorded."""

    NOTHING = auto()
    ENDS = auto()
    FIRST = auto()
    OUTDONE = auto()


class SignalChoice:
    """Chooses the signal that ends the steps.

    ``name`` is that signal, or None before any came. It is the ``chosen`` one if there is one, else the best so far. If
    a step ``has_begun`` already, the chosen signal ends it, or `step` by default. Every ``every``-th signal ends a
    step. With ``is_replacement`` profkit, not the user, chose the signal in place of a weaker one, and `step` may still
    replace it. ``outdone_by`` names a better signal that came too late, or the same if another optimizer took over;
    ``outdone`` is where it came. The signal ``ended_by`` outdoes any other: it is that of the training, between whose
    steps the recording was made.
    ``is_each_update`` says that every optimizer step ends a step; it is an attribute because it is read at every
    optimizer step.
    """

    def __init__(
        self,
        chosen: str | None = None,
        has_begun: bool = False,
        every: int = 1,
        is_replacement: bool = False,
        ended_by: str | None = None,
    ) -> None:
        self._ended_by = ended_by
        self.chosen = chosen or (EXPLICIT if has_begun else None)
        self.outdone: StepBoundary | None = None
        self.outdone_by: str | None = None
        self._successors = 0
        self._every, self._ends, self._is_replacement = every, 0, is_replacement
        self._take(self.chosen if has_begun else None)
        self._accumulation = Accumulation()

    def counts(self, boundary: StepBoundary, is_committed: bool) -> bool:
        """Whether a step may end here.

        Not within a backward pass, where an optimizer may step in hooks. Nor after a call of the model whose gradients
        still wait for the optimizer, unless a step that ended by such a call is already recorded (``is_committed``).
        """
        signal = boundary.signal
        may_wait = signal == FORWARD and self.chosen is None and self.name in (None, FORWARD) and not is_committed
        if may_wait and self._accumulation.goes_on():
            return False
        return not in_backward_pass() and (self.chosen in (None, signal) or self._outdoes(signal))

    def judge(self, boundary: StepBoundary, is_committed: bool) -> Verdict:
        """What the boundary means; call it only if the boundary `counts`. A weaker signal than before means nothing.
        Once committed, a better signal ends the recording, and another recording begins."""
        signal = boundary.signal
        if signal == self.name and boundary.is_successor and self._every == 1 and self._successors < _MOST_SUCCESSORS:
            self._successors += 1
            self.outdone_by = signal if is_committed else None
            return Verdict.OUTDONE if is_committed else Verdict.FIRST
        if signal == self.name:
            self._ends += 1
            return Verdict.ENDS if self._ends % self._every == 0 else Verdict.NOTHING
        if self.chosen in (None, signal) and self._is_better(signal) and not is_committed:
            self._take(signal)
            return Verdict.FIRST
        if self._outdoes(signal):
            self.outdone, self.outdone_by = boundary, signal
            return Verdict.OUTDONE
        return Verdict.NOTHING

    def choose(self, signal: str) -> None:
        """From here on such a signal ends a step, and no other does."""
        self.chosen = signal
        self.begin_again()

    def begin_again(self) -> None:
        """Discard the steps so far: they ended on a thread that is no longer recorded."""
        self._ends = 0
        self._take(None)

    def _take(self, signal: str | None) -> None:
        self.name = signal
        self.is_each_update = signal == OPTIMIZER and self._every == 1

    @property
    def was_succeeded(self) -> bool:
        """Whether another optimizer took over amid the recorded steps."""
        return self.outdone_by is not None and self.outdone_by == self.name

    @property
    def is_open(self) -> bool:
        """Whether no signal has come yet and any may."""
        return self.name is None and self.chosen is None

    @property
    def is_weak(self) -> bool:
        """Whether the steps are mere calls of the model, which the prologue may hold as well."""
        return self.name == FORWARD

    @property
    def may_be_outdone(self) -> bool:
        """Whether the steps are calls of the model, backward passes or batches because no optimizer has stepped."""
        return self.chosen is None and self.name in (FORWARD, BACKWARD, DATALOADER)

    @property
    def awaits_optimizer(self) -> bool:
        """Whether the steps `may_be_outdone` and an optimizer exists."""
        return self.may_be_outdone and has_living_optimizer()

    @property
    def gives_way(self) -> bool:
        """Whether announced steps may replace these: neither did the program announce them nor the user choose them."""
        return self.name not in (None, EXPLICIT) and (self.chosen is None or self._is_replacement)

    @property
    def is_missing(self) -> bool:
        """Whether the chosen signal never came."""
        return self.chosen is not None and self.name is None

    def _outdoes(self, signal: str) -> bool:
        if self._ended_by is not None:
            return signal == self._ended_by
        return self.gives_way if signal == EXPLICIT else signal == OPTIMIZER and self.may_be_outdone

    def _is_better(self, signal: str) -> bool:
        return signal == self.chosen or _STRENGTH.get(signal, 0) > _STRENGTH[self.name]
