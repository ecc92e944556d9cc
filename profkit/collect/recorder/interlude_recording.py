"""The recording of what passes between the steps, beside that of the steps, which goes on as it is.

For a moment it is only observed what may end its steps: calls of the model, or else rounds of the loop that is at work.
If there is neither, a part of what passes is recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from types import CodeType, FrameType
from typing import Protocol

from profkit.collect.boundaries.choice import FORWARD, StepBoundary
from profkit.collect.boundaries.forwards import ForwardCalls
from profkit.collect.boundaries.loop_rounds import LoopRounds
from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.guard import Guard, describe
from profkit.collect.recorder.recorder import Recorder
from profkit.collect.sessions.session import is_capturing
from profkit.run.directory import PROFKIT_FAILED
from profkit.run.plan import ROUND, Plan
from profkit.source.user_code import UserFiles

_LEAST_CALLS = 3
"""Of the model: two steps between them are sign enough of more."""


class Make(Protocol):
    """Makes the recorder of an interlude."""

    def __call__(self, plan: Plan, guard: Guard, on_over: Callable[[], None], /) -> Recorder: ...


class InterludeRecording:
    """Call `observe` on the main thread, then now and then `find_signal`, up to `begin` or `stop_observing`; and
    `finish` at the end of the program. ``on_over`` is called when nothing of the recording is left in the program, with
    the end of the training step that ended it, if one did. An error ends it, and nothing else."""

    def __init__(self, make: Make, is_user: UserFiles, on_over: Callable[[StepBoundary | None], None]) -> None:
        self._make, self._is_user, self._on_over = make, is_user, on_over
        self.guard = Guard(self._fail)
        self._recorder: Recorder | None = None
        self._rounds: LoopRounds | None = None
        self._calls: ForwardCalls | None = None
        self._called = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is in the program."""
        return self._recorder is None or self._recorder.over

    @property
    def has_steps(self) -> bool:
        """Whether steps were recorded, or a part where there are none."""
        return self._recorder is not None and (self._recorder.has_steps or self._recorder.is_part)

    def observe(self, function: CodeType, of_steps: Collection[int], frame: FrameType | None) -> bool:
        """Find out what may end steps below that function, beside its lines that are ``of_steps``. Returns False if it
        is over, or if a debugger traces it."""
        self._rounds = rounds = LoopRounds(function, of_steps, self._is_user, lambda: self.guard(self._end_rounds))
        self._calls, self._called = ForwardCalls(self._count_call, self.guard), 0
        if not rounds.install(frame):
            return False
        self._calls.install()
        return True

    def find_signal(self) -> str | None:
        """What ends steps: calls of the model, rounds of a loop, or nothing, which is an empty name; None if more time
        must tell."""
        if self._called >= _LEAST_CALLS:
            return FORWARD
        if self._rounds is None or self._rounds.is_hopeless:
            return FORWARD if self._called else ""
        return ROUND if self._rounds.choose() is not None else None

    def begin(self, plan: Plan, signal: str, of_steps: StepSignals) -> None:
        """Record. The next step ``of_steps``, the recording so far, ends it."""
        frame = sys._getframe()
        loop = self._rounds.choose() if self._rounds is not None and signal == ROUND else None
        self.stop_observing()
        self._recorder = recorder = self._make(plan, self.guard, self._end)
        recorder.signals.follow(of_steps)
        if loop is not None and self._rounds is not None:
            recorder.step_by_rounds(loop, self._rounds.reach)
        recorder.start()
        if loop is not None and self._rounds is not None:
            self._rounds.install(frame)

    def stop_observing(self) -> None:
        """Leave the program alone: it is known what ends steps, or the training goes on already."""
        if self._rounds is not None:
            self._rounds.remove(sys._getframe())
        if self._calls is not None:
            self._calls.remove()

    def _count_call(self) -> None:
        self._called += 1

    def step(self, boundary: StepBoundary) -> None:
        """The program announces the end of a step."""
        if not self.is_over:
            self.tell(lambda of: of.hear(boundary))

    def tell(self, action: Callable[[Recorder], None]) -> None:
        if (recorder := self._recorder) is not None:
            self.guard(lambda: action(recorder))

    def finish(self, time_ns: int) -> None:
        """The program ended; the work went on for so long in all."""
        self.stop_observing()
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

    def _fail(self, error: BaseException) -> None:
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            self.stop_observing()
            if recorder is not None:
                recorder.abandon(PROFKIT_FAILED + describe(error))
            self._on_over(None)
