"""Which of all signals ends the program's steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto
from threading import get_ident

from msgspec import Struct

from profkit.collect.boundaries.accumulation import Accumulation, living_optimizers
from profkit.collect.program.engine import in_backward_pass
from profkit.plan import EXPLICIT, SIGNALS

OPTIMIZER, DATALOADER, FORWARD = SIGNALS["optimizer"], SIGNALS["dataloader"], SIGNALS["forward"]
_STRENGTH = {None: 0, FORWARD: 1, DATALOADER: 2, OPTIMIZER: 3, EXPLICIT: 4}
"""Passes over the DataLoader are left out: they come with batches, which say more."""


class StepBoundary(Struct, frozen=True):
    """A place where a step of the program may have ended, reported by ``signal`` (a value of `profkit.plan.SIGNALS`) on
    ``thread`` at ``time_ns`` (``time.perf_counter_ns``). The recorder calls ``between`` before the next step begins."""

    signal: str
    thread: int
    time_ns: int
    between: Callable[[], None] | None = None

    @classmethod
    def here(cls, signal: str, between: Callable[[], None] | None = None) -> StepBoundary:
        """A boundary on this thread, now."""
        return cls(signal, get_ident(), time.perf_counter_ns(), between)


class Verdict(Enum):
    """What a boundary means: nothing; a step ends; the ``FIRST`` step by a better signal ends, and those before were
    none; or a better signal comes when steps by a weaker one are already recorded."""

    NOTHING = auto()
    ENDS = auto()
    FIRST = auto()
    OUTDONE = auto()


class SignalChoice:
    """``name`` is the signal that ends the steps, once there is one: the best so far, or the ``chosen`` one alone. If a
    step ``has_begun`` already, that signal ends it, or `step` if none is chosen. Each ``every``-th signal ends a
    step. A signal that profkit chose, as a replacement (``is_replacement``) for a weaker one, still gives way to
    `step`. ``outdone_by`` names a better signal that came too late. ``is_each_update``: each step of the optimizer ends
    a step; it is read at each of them.
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
        """Whether a step may end here. A signal within a backward pass (an optimizer that steps in hooks) says nothing
        of that. Neither does a call of the model whose gradients wait for an optimizer, until a step that ended by a
        call is recorded (``is_committed``)."""
        signal = boundary.signal
        may_wait = signal == FORWARD and self.chosen is None and self.name in (None, FORWARD) and not is_committed
        if may_wait and self._accumulation.goes_on():
            return False
        return not in_backward_pass() and (self.chosen in (None, signal) or self._outdoes(signal))

    def judge(self, boundary: StepBoundary, is_committed: bool) -> Verdict:
        """What a boundary means that `counts` and is heard. A weaker signal than before means nothing. Once committed,
        a better one ends the recording, and another begins."""
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
        """The steps so far were none: they ended on a thread that is not recorded any more."""
        self._ends = 0
        self._take(None)

    def _take(self, signal: str | None) -> None:
        self.name = signal
        self.is_each_update = signal == OPTIMIZER and self._every == 1

    @property
    def is_open(self) -> bool:
        """Whether no signal has come, and any may."""
        return self.name is None and self.chosen is None

    @property
    def is_weak(self) -> bool:
        """Whether the steps are mere calls of the model, of which the prologue may hold as many."""
        return self.name == FORWARD

    @property
    def may_be_outdone(self) -> bool:
        """Whether the steps are calls of the model or batches, for want of an optimizer that steps."""
        return self.chosen is None and self.name in (FORWARD, DATALOADER)

    @property
    def awaits_optimizer(self) -> bool:
        """Whether there is such an optimizer."""
        return self.may_be_outdone and bool(living_optimizers())

    @property
    def gives_way(self) -> bool:
        """Whether the steps are neither announced nor chosen by the user: announced ones take their place."""
        return self.name not in (None, EXPLICIT) and (self.chosen is None or self._is_replacement)

    @property
    def is_missing(self) -> bool:
        """Whether the only signal that counts never came."""
        return self.chosen is not None and self.name is None

    def _outdoes(self, signal: str) -> bool:
        return self.gives_way if signal == EXPLICIT else signal == OPTIMIZER and self.may_be_outdone

    def _is_better(self, signal: str) -> bool:
        return signal == self.chosen or _STRENGTH.get(signal, 0) > _STRENGTH[self.name]
