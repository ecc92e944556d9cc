"""The recording of what passes between the steps, beside that of the steps, which goes on as it is.

Calls of the model end its steps. If none comes soon, rounds of the loop do that is at work, and if there is no such
loop, a part of what passes is recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Protocol

from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.loop_rounds import LoopRounds
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard, describe
from profkit.collect.recorder.recorder import Recorder
from profkit.collect.sessions.session import is_capturing
from profkit.run.directory import PROFKIT_FAILED
from profkit.run.plan import ROUND, Plan
from profkit.source.user_code import UserFiles


class Make(Protocol):
    """Makes the recorder of an interlude."""

    def __call__(self, plan: Plan, guard: Guard, on_over: Callable[[], None], /) -> Recorder: ...


class InterludeRecording:
    """Call `begin` once, on the main thread, and `finish` at the end of the program. ``on_over`` is called when nothing
    of it is left in the program, with the end of the training step that ended it, if one did. An error ends it, and
    nothing else."""

    def __init__(self, make: Make, is_user: UserFiles, on_over: Callable[[StepBoundary | None], None]) -> None:
        self._make, self._is_user, self._on_over = make, is_user, on_over
        self.guard = Guard(self._give_up)
        self._recorder: Recorder | None = None
        self._rounds: LoopRounds | None = None

    @property
    def has_begun(self) -> bool:
        return self._recorder is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is in the program."""
        return self._recorder is None or self._recorder.over

    def begin(self, plan: Plan, of_steps: StepSignals, function: CodeType, frame: FrameType | None) -> None:
        """The work goes on below that function. The next step ``of_steps``, the recording so far, ends it."""
        self._recorder = recorder = self._make(plan, self.guard, self._end)
        recorder.signals.follow(of_steps)
        recorder.start()
        self._rounds = rounds = LoopRounds(function, self._is_user, lambda: self.guard(self._end_rounds))
        rounds.install(frame)

    def hurry(self) -> bool:
        """No call of the model may have come for long: find something else that ends steps. Return whether that needs
        no more calls."""
        recorder, rounds = self._recorder, self._rounds
        if recorder is None or rounds is None:
            return True
        if not recorder.awaits_first:
            rounds.remove(sys._getframe())
            return True
        if (loop := rounds.choose()) is not None:
            recorder.step_by(ROUND)
            recorder.await_line(loop.code, loop.line, rounds.reach)
            return True
        if rounds.is_hopeless:
            rounds.remove(sys._getframe())
            recorder.begin_here()
            return True
        return False

    def step(self, boundary: StepBoundary) -> None:
        """The program announces the end of a step."""
        if not self.is_over:
            self.tell(lambda of: of.hear(boundary))

    def tell(self, action: Callable[[Recorder], None]) -> None:
        if (recorder := self._recorder) is not None:
            self.guard(lambda: action(recorder))

    def finish(self, time_ns: int) -> None:
        """The program ended; the work went on for so long in all."""
        if (recorder := self._recorder) is not None:
            recorder.note_interlude(time_ns)
            self.guard(recorder.finish)

    def _end_rounds(self) -> None:
        """Some rounds are over: so is a step. No tracer may be set when the recorder sets its own."""
        recorder, rounds, frame = self._recorder, self._rounds, sys._getframe()
        if recorder is None or rounds is None or recorder.over or in_backward_pass() or is_capturing():
            return
        rounds.remove(frame)
        recorder.take(StepBoundary.here(ROUND))
        if not (recorder.over or recorder.locates):  # else its tracer tells of the line
            rounds.install(frame)

    def _end(self) -> None:
        if (rounds := self._rounds) is not None:
            rounds.remove(sys._getframe())
        self._on_over(self._recorder.choice.outdone if self._recorder is not None else None)

    def _give_up(self, error: BaseException) -> None:
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            if self._rounds is not None:
                self._rounds.remove(sys._getframe())
            if recorder is not None:
                recorder.abandon(PROFKIT_FAILED + describe(error))
            self._on_over(None)
