"""``profkit.profile``: records the program around which it stands, and never breaks it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar

from profkit.collect.boundaries.next_boundary import NextBoundary
from profkit.collect.boundaries.step_boundary import StepBoundary
from profkit.collect.program.guard import Guard, describe, describe_end, say, uncompiled
from profkit.collect.ranks.identity import for_rank
from profkit.collect.ranks.launches import claim_directory, settle
from profkit.collect.recorder.diagnosis import diagnose
from profkit.collect.recorder.early_end import Stopper
from profkit.collect.recorder.recorder import Progress, Recorder
from profkit.collect.recorder.replacement import ANEW, PATIENCE_S, Replacement
from profkit.collect.recorder.termination import NOTE, STATUS, Termination
from profkit.collect.recorder.windows import WindowRequests, complete, note_outdone, note_window, window_directory
from profkit.collect.sessions.allowance import Allowance
from profkit.plan import (
    ACTIVE_STEPS,
    BEST_SIGNAL,
    EXPLICIT,
    FULL_RANKS,
    LIMIT_S,
    WAIT_STEPS,
    WARMUP_STEPS,
    Plan,
    Subject,
)
from profkit.run import (
    FAILED,
    PROFKIT_FAILED,
    create_directory,
    default_directory,
    directory_of_target,
    find_trace,
    fixed,
    unused_directory,
)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class profile:  # noqa: N801  # reads like torch.profiler.profile, whose place it takes
    """Record a few steps of a program into a run directory; a context manager or a decorator.

    ::

        with profkit.profile("traces/exp1") as prof:
            for batch in loader:
                train_step(batch)
        print(prof.diagnosis)

    ``directory`` is made if absent (default ``traces/<target>/<time>``, where ``target`` is the script's name); if it
    holds a run already, ``directory-2`` is taken, and so on. Each of several ranks records into a folder of its own in
    it (default ``traces/<target>/<launch>``); if there are more than ``ranks``, that many record everything and the
    others collectives and steps.

    ``wait`` steps pass unprofiled and are timed, ``warmup`` steps are recorded to learn which line runs what, and
    ``active`` steps are recorded to be measured; after thirty more timed steps, or 40 s of the optimizer's, everything
    is removed. Steps that come in cycles are recorded anew, cycle by cycle. ``at_step`` is the number of the first step
    that is recorded, from 0.

    Steps end where the program calls `step`, else after the optimizer's step, else at each batch of a DataLoader, else,
    if none of these comes for long, after each call of the model. A program without any is recorded from its start, for
    at most ``limit_s`` seconds. ``steps_from`` chooses one: ``step``, ``optimizer``, ``dataloader``, ``forward`` or
    ``epoch`` (a new pass over the DataLoader).

    ``on_progress`` is called with the phase of each step, the number of steps over and the number planned. At the next
    end of a step SIGUSR1 begins another recording, in a directory of its own, if the context was entered on the main
    thread and the program does not handle the signal.

    A profile records once; as a decorator it records the first call. Errors in here never reach the program: they
    become one line on stderr and a note in ``run.json``.
    """

    _current: ClassVar[profile | None] = None

    def __init__(  # noqa: PLR0913  # options by name
        self,
        directory: str | Path | None = None,
        *,
        wait: int = WAIT_STEPS,
        warmup: int = WARMUP_STEPS,
        active: int = ACTIVE_STEPS,
        limit_s: float = LIMIT_S,
        steps_from: str = BEST_SIGNAL,
        at_step: int = 0,
        ranks: int = FULL_RANKS,
        target: str | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        script = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "run"
        signal = None if steps_from == BEST_SIGNAL else steps_from
        window = Plan(wait=wait, warmup=warmup, active=active, limit_s=limit_s, steps_from=signal, at_step=at_step)
        plan = replace(window, ranks=ranks)
        subject = Subject(("python", *sys.argv), target or script)
        wanted = None if directory is None else fixed(Path(directory))
        by_default = fixed(directory_of_target(subject.target or "run"))
        alone = unused_directory(wanted or default_directory(subject.target or "run"))
        self._prepare(alone, plan, subject, on_progress, partial(claim_directory, wanted, by_default))

    @classmethod
    def planned(cls, directory: Path, plan: Plan, subject: Subject, on_progress: Progress | None = None) -> profile:
        """For profkit's own use: with everything that a plan can say."""
        made = cls.__new__(cls)
        made._prepare(directory, plan, subject, on_progress)
        return made

    def _prepare(
        self,
        directory: Path,
        plan: Plan,
        subject: Subject,
        on_progress: Progress | None,
        claim: Callable[[], Path | None] = lambda: None,
    ) -> None:
        """``claim`` finds another directory for one of several ranks, when the recording begins."""
        self._claim = claim
        self._directory, self._plan, self._subject, self._on_progress = fixed(directory), plan, subject, on_progress
        self._directories: list[Path] = []
        self._guard = Guard(self._give_up)
        self._recorder: Recorder | None = None
        self._allowance = Allowance()
        self._next = NextBoundary(self._guard, lambda: not self.is_over, self._begin_window)
        self._requests = WindowRequests(self._next)
        self._replacement = Replacement(self._guard, lambda: not self.is_over, self._begin_anew)
        self._stopper = Stopper()
        self._termination = Termination(self._guard, lambda: self._end(STATUS, (NOTE,)))
        self._outer: profile | None = None
        self._was_used = self._is_finished = False
        self._diagnosis: Any = None

    @property
    def directory(self) -> Path:
        """The run directory, as an absolute path: the program may change its working directory."""
        return self._directory

    @property
    def directories(self) -> tuple[Path, ...]:
        """The run directory, and those of the windows that were asked for since."""
        return tuple(self._directories)

    @property
    def is_over(self) -> bool:
        """Whether all planned steps are over, so that nothing is recorded or timed any more."""
        return self._recorder is None or self._recorder.over

    @property
    def diagnosis(self) -> Any:
        """The `Diagnosis` of what was recorded; None inside the context, and where nothing could be recorded.

        It is made when it is first asked for, which also writes ``diagnosis.json`` and ``report.html`` into the run
        directory."""
        if self._diagnosis is None and self._is_finished:
            try:
                self._diagnosis = diagnose(self._directory)
            except Exception as error:
                say(f"no diagnosis: {describe(error)}")
        return self._diagnosis

    @uncompiled
    def __enter__(self) -> profile:
        self._guard(self._begin)
        return self

    @uncompiled
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        notes = () if error is None or isinstance(error, SystemExit) else (f"{FAILED}{describe_end(error)}",)
        self._guard(lambda: self._end(None, notes, error=error))
        return False

    def __call__(self, function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(function)
        def record_first_call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if self._was_used:
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return record_first_call

    def step(self) -> None:
        """Say that a step of the program ends here. It is optional: without it steps end as ``steps_from`` says."""
        self.step_with(None)

    @uncompiled
    def step_with(self, between: Callable[[], None] | None) -> None:
        """`step`, and a call of ``between`` that belongs to neither step."""
        if self._outer is not None:
            self._outer.step_with(between)
            return
        recorder, boundary = self._recorder, StepBoundary.here(EXPLICIT, between)
        if recorder is not None and not recorder.over:
            self._guard(lambda: recorder.step(boundary))
        elif between is not None:
            between()
        else:
            self._guard(lambda: self._announce_late(boundary))

    def _announce_late(self, boundary: StepBoundary) -> None:
        """A step ends when nothing is recorded any more: it may be what should have been, or a window may be wanted."""
        if not self._replacement.announce(boundary, self._recorder):
            self._next.take(boundary)

    @uncompiled
    def pause(self) -> None:
        """Say that what follows, up to `resume`, belongs to no step: an evaluation between two steps of a training."""
        if (recorder := self._outermost._recorder) is not None:
            self._guard(recorder.begin_pause)

    @uncompiled
    def resume(self) -> None:
        """Say that the next step begins here."""
        if (recorder := self._outermost._recorder) is not None:
            self._guard(recorder.end_pause)

    def finish(
        self, exit_status: int, note: str | None = None, was_stopped: bool = False, error: BaseException | None = None
    ) -> None:
        """Leave the context of a program that was a process of its own and ended with ``exit_status``, by an ``error``
        if there was one; it ``was_stopped`` if it was ended once it was recorded."""
        self._guard(lambda: self._end(exit_status, () if note is None else (note,), was_stopped, error))

    @property
    def _outermost(self) -> profile:
        return self if self._outer is None else self._outer._outermost

    def _begin(self) -> None:
        if self._was_used:
            say("not recording: a profile records once, make another one")
            return
        self._was_used = True
        if profile._current is not None:
            self._outer = profile._current
            say("not recording: another profkit.profile is on, which gets this one's steps")
            return
        self._directory = self._claim() or self._directory
        self._plan = for_rank(self._plan)
        self._allowance = Allowance(is_rank=self._plan.is_rank)
        recorder = self._make_recorder(self._directory, self._plan)
        profile._current = self
        atexit.register(self._end_at_exit)
        self._requests.install()
        recorder.start()

    def _make_recorder(
        self, directory: Path, plan: Plan, replaces: Path | None = None, notes: Iterable[str] = ()
    ) -> Recorder:
        if directory not in self._directories:
            create_directory(directory)
            self._directories.append(directory)
        self._recorder = recorder = Recorder(
            directory,
            plan,
            self._subject,
            self._guard,
            self._allowance,
            on_progress=self._on_progress,
            on_over=self._when_over,
            is_awaited=lambda: self._next.is_wanted,
            wake=self._requests.wake,
            replaces=replaces,
            notes=notes,
        )
        self._termination.install()
        return recorder

    def _when_over(self) -> None:
        """Nothing of the program is recorded or timed any more."""
        self._termination.remove()
        if (recorder := self._recorder) is not None and recorder.choice.outdone_by == EXPLICIT:
            self._begin_anew(EXPLICIT)
        elif self._plan.stops:
            self._stop(recorder)
        elif recorder is not None:
            if (cycle := recorder.cycles.found) is not None:
                self._record_anew(cycle.plan(recorder.cycles.plan), cycle.note)
            elif recorder.choice.may_be_outdone:
                self._replacement.wait()
            self._next.go_on(recorder.choice.name, recorder.thread.ident)

    def _stop(self, recorder: Recorder | None) -> None:
        """End the program now. If only calls or batches were recorded and there is an optimizer, wait some time for its
        steps to be recorded."""
        may_go_on = recorder is not None and recorder.choice.awaits_optimizer
        if may_go_on:
            self._replacement.wait()
        self._stopper.request(PATIENCE_S if may_go_on else 0.0)

    def _begin_window(self, signal: str) -> None:
        """A step ended by ``signal``, and another recording was requested."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish()
        window = len(self._directories) + 1
        directory = window_directory(self._directory, window)
        self._allowance = Allowance(is_rank=self._plan.is_rank)  # the user asked for the window, and for its cost
        recorder = self._make_recorder(directory, self._plan.for_window(window, signal))
        note_window(self._directory, directory)
        recorder.start()

    def _begin_anew(self, signal: str) -> None:
        """A better signal came after all, and other steps were recorded."""
        if self._plan.stops:
            self._stopper.request(PATIENCE_S)
        self._record_anew(self._plan.for_better(signal), ANEW[signal], partial(note_outdone, signal))

    def _record_anew(self, plan: Plan, note: str, mark: Callable[[Path], None] = lambda _: None) -> None:
        """Record in place of what the directory holds, which stands until enough is measured."""
        if self._recorder is not None:
            self._recorder.finish()
        mark(self._directory)
        self._make_recorder(self._directory, plan, find_trace(self._directory), (note,)).start()

    def _end(
        self,
        exit_status: int | None,
        notes: Iterable[str],
        was_stopped: bool = False,
        error: BaseException | None = None,
    ) -> None:
        self._stopper.cancel()
        if self._recorder is not None:
            self._let_go()
            self._recorder.finish(exit_status, notes, was_stopped, error)
            self._recorder = None
            self._is_finished = True
            complete(self._directories, exit_status, was_stopped)
            if len(self._directories) == 1:  # a window is named after the first directory, and noted in it
                self._directories = [settle(self._directory)]
                self._directory = self._directories[0]

    def _end_at_exit(self) -> None:
        """The program never left the context."""
        self._guard(lambda: self._end(None, ("the recording was never ended: it lasted until the program's exit",)))

    def _let_go(self) -> None:
        if profile._current is self:
            profile._current = None
        atexit.unregister(self._end_at_exit)
        for part in (self._requests, self._next, self._replacement, self._termination):
            part.remove()

    def _give_up(self, error: BaseException) -> None:
        """Profkit failed: leave the program alone from here on."""
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            self._let_go()
            say(f"{'not recording' if recorder is None else 'recording abandoned'}: {describe(error)}")
            if recorder is not None:
                recorder.abandon(PROFKIT_FAILED + describe(error))

    def _leave_to_parent(self) -> None:
        """The program has forked, and this is the child."""
        profile._current = None
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            self._stopper.disown()
            with suppress(Exception):
                self._let_go()
                recorder.disown()


def _tell_recorder(tell: Callable[[Recorder], None]) -> None:
    if (current := profile._current) is not None and (recorder := current._recorder) is not None:
        current._guard(lambda: tell(recorder))


def _leave_to_parent() -> None:
    if (current := profile._current) is not None:
        current._leave_to_parent()


if hasattr(os, "register_at_fork"):  # the parent goes on with its recording, the child has none
    os.register_at_fork(
        before=lambda: _tell_recorder(Recorder.before_fork),
        after_in_parent=lambda: _tell_recorder(Recorder.after_fork),
        after_in_child=_leave_to_parent,
    )
