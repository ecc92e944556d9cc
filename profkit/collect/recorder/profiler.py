"""``profkit.profile``: records the program inside it and never breaks it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar

from profkit.collect.boundaries.choice import StepBoundary
from profkit.collect.boundaries.next_boundary import NextBoundary
from profkit.collect.program.guard import Guard, describe, describe_end, say, uncompiled
from profkit.collect.ranks.folders import claim_directory, settle
from profkit.collect.ranks.identity import for_rank
from profkit.collect.recorder.change_watch import ChangeWatch
from profkit.collect.recorder.diagnosis import diagnose
from profkit.collect.recorder.early_end import Stopper
from profkit.collect.recorder.interlude_recording import InterludeRecording
from profkit.collect.recorder.interludes import InterludeWatch
from profkit.collect.recorder.recorder import Progress, Recorder
from profkit.collect.recorder.replacement import NOTES, PATIENCE_S, Replacement
from profkit.collect.recorder.termination import NOTE, STATUS, Termination
from profkit.collect.recorder.windows import WindowRequests, complete, note_outdone, note_window, window_directory
from profkit.collect.sessions.allowance import MANY_EVENTS, Allowance
from profkit.collect.whole_run.looks import Line
from profkit.collect.whole_run.watch import RunWatch
from profkit.core.units import format_time
from profkit.run.directory import (
    FAILED,
    INTERLUDE,
    PROFKIT_FAILED,
    TRACE_SUFFIXES,
    CallSite,
    Interlude,
    create_directory,
    default_directory,
    directory_of_target,
    find_trace,
    fixed,
    unused_directory,
)
from profkit.run.plan import (
    ACTIVE_STEPS,
    BEST_SIGNAL,
    EXPLICIT,
    FULL_RANKS,
    LIMIT_S,
    SIGNALS,
    WAIT_STEPS,
    WARMUP_STEPS,
    Plan,
    Subject,
)
from profkit.run.whole_run import StackActivity
from profkit.source.user_code import UserFiles

_WORTH = 2
"""So many times the events that are worth recording must be left for what passes between the steps."""
_OF_TRAINING = frozenset((EXPLICIT, SIGNALS["optimizer"]))
"""The signals between which an evaluation may pass. Others end the steps of programs that do nothing else."""
_SUCCEEDED = "another optimizer took over during the recorded steps: profkit recorded its steps instead"

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class profile:  # noqa: N801  # named like torch.profiler.profile, which it replaces
    """Record a few steps of a program into a run directory; a context manager or a decorator.

    ::

        with profkit.profile("traces/exp1") as prof:
            for batch in loader:
                train_step(batch)
        print(prof.diagnosis)

    ``directory`` is made if absent (default ``traces/<target>/<time>``, where ``target`` is the script's name). If it
    holds a run already, the recording goes to ``directory-2``, and so on. In a launch of several ranks, each records
    into its own folder inside it (default ``traces/<target>/<launch>``). If there are more than ``ranks``, that many
    record everything and the others only collectives and steps.

    ``wait`` steps pass unprofiled and are timed, ``warmup`` steps are recorded to learn which line runs what, and
    ``active`` steps are recorded to be measured. After thirty more timed steps, or 40 s of optimizer steps, profkit
    removes itself. If the steps come in cycles, it records again, one cycle per step. ``at_step`` is the number of the
    first recorded step, from 0.

    A step ends where the program calls `step`; without such calls, after each step of the optimizer; without an
    optimizer, at each batch of a DataLoader, or else after each backward pass; and if none of these comes for a long
    time, after each call of the model. A program without steps is recorded from its start, for at most ``limit_s``
    seconds. ``steps_from`` chooses the signal: ``step``, ``optimizer``, ``dataloader``, ``backward``, ``forward`` or
    ``epoch`` (a new pass over the DataLoader).

    Each step calls ``on_progress`` with its phase, the number of completed steps and the number planned. SIGUSR1 begins
    another recording at the end of the current step, in a new directory, if the context was entered on the main thread
    and the program does not handle the signal.

    A profile records once; as a decorator it records the first call. Errors in profkit never reach the program: they
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
        plan = Plan(
            wait=wait,
            warmup=warmup,
            active=active,
            limit_s=limit_s,
            steps_from=signal,
            at_step=at_step,
            ranks=ranks,
        )
        subject = Subject(("python", *sys.argv), target or script)
        wanted = None if directory is None else fixed(Path(directory))
        by_default = fixed(directory_of_target(subject.target or "run"))
        alone = unused_directory(wanted or default_directory(subject.target or "run"))
        self._prepare(alone, plan, subject, on_progress, partial(claim_directory, wanted, by_default))

    @classmethod
    def planned(
        cls,
        directory: Path,
        plan: Plan,
        subject: Subject,
        on_progress: Progress | None = None,
        *,
        why: str = "",
        on_over: Callable[[], None] = lambda: None,
        counting: ChangeWatch | None = None,
    ) -> profile:
        """For profkit's own use: a profile with a complete plan. ``why`` it was opened is noted, and what it cost.
        ``on_over`` is called when nothing of it is left in the program. From then on ``counting``, where a whole run is
        watched, still listens to the ends of steps."""
        made = cls.__new__(cls)
        made._prepare(directory, plan, subject, on_progress, why=why, on_over=on_over, counting=counting)
        return made

    def _prepare(
        self,
        directory: Path,
        plan: Plan,
        subject: Subject,
        on_progress: Progress | None,
        claim: Callable[[], Path | None] = lambda: None,
        *,
        why: str = "",
        on_over: Callable[[], None] = lambda: None,
        counting: ChangeWatch | None = None,
    ) -> None:
        """``claim`` returns another directory for one of several ranks when the recording begins."""
        self._claim, self._why, self._on_over, self._counting = claim, why, on_over, counting
        self._directory, self._plan, self._subject, self._on_progress = fixed(directory), plan, subject, on_progress
        self._directories: list[Path] = []
        self._guard = Guard(self._give_up)
        self._recorder: Recorder | None = None
        self._allowance = Allowance()
        self._next = NextBoundary(self._guard, lambda: not self.is_over, self._begin_window)
        self._requests = WindowRequests(self._next)
        self._replacement = Replacement(self._guard, lambda: not self.is_over, self._begin_better)
        is_user = UserFiles(subject.roots)
        self._interlude = InterludeRecording(self._make_interlude, is_user, self._when_interlude_is_over)
        self._interludes = InterludeWatch(
            self._interlude.guard, self._observe_interlude, self._begin_interlude, self._interlude.stop_observing
        )
        self._stopper = Stopper()
        self._termination = Termination(self._guard, lambda: self._end(STATUS, (NOTE,)))
        self._outer: profile | None = None
        self._was_used = self._is_finished = False
        self._diagnosis: Any = None
        self._watch: RunWatch | None = None

    @property
    def directory(self) -> Path:
        """The run directory as an absolute path, as the program may change its working directory."""
        return self._directory

    @property
    def directories(self) -> tuple[Path, ...]:
        """The run directory and those of the windows that were requested since."""
        return tuple(self._directories)

    @property
    def is_over(self) -> bool:
        """Whether all planned steps are over and nothing more is recorded or timed."""
        return self._recorder is None or (self._recorder.over and self._interlude.is_over)

    @property
    def diagnosis(self) -> Any:
        """The `Diagnosis` of the recording; None inside the context, and if nothing could be recorded.

        The first access makes it, and writes ``diagnosis.json`` and ``report.html`` into the run directory."""
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
        """Announce the end of a step. This is optional: without it steps end as ``steps_from`` says."""
        self.step_with(None)

    @uncompiled
    def step_with(self, between: Callable[[], None] | None) -> None:
        """Announce the end of a step, then call ``between``, which belongs to neither step."""
        if self._outer is not None:
            self._outer.step_with(between)
            return
        recorder, boundary = self._recorder, StepBoundary.here(EXPLICIT, between)
        self._interlude.step(boundary)
        if recorder is not None and not recorder.over:
            self._guard(lambda: recorder.step(boundary))
            return
        self._guard(lambda: self._announce_late(boundary))
        if between is not None:
            between()

    def _announce_late(self, boundary: StepBoundary) -> None:
        """A step ends after the recording: it counts, may be better than the recorded ones, or a window may be
        requested. No recording begins where work comes between two steps."""
        if self._counting is not None:
            self._counting.take(boundary)
        if boundary.between is None and not self._replacement.announce(boundary, self._recorder):
            self._next.take(boundary)

    @uncompiled
    def pause(self) -> None:
        """Say that the work up to `resume` belongs to no step, such as an evaluation between two training steps."""
        if (recorder := self._outermost._recorder) is not None:
            self._guard(recorder.begin_pause)

    @uncompiled
    def resume(self) -> None:
        """Say that the next step begins here."""
        if (recorder := self._outermost._recorder) is not None:
            self._guard(recorder.end_pause)

    def look(self, activity: StackActivity, lines: Sequence[Line]) -> None:
        """The main thread was seen at that; called on another thread. What passes for long between the steps is
        recorded too, where the whole run is watched."""
        recorder, plan = self._recorder, self._plan
        if recorder is None or self._counting is None or plan.stops or plan.is_rank or plan.is_light:
            return
        ended_ns, usual_ns = recorder.pace
        if ended_ns and recorder.choice.name in _OF_TRAINING and recorder.records_single_steps:
            ended_ns = max(ended_ns, self._counting.ended_ns)
            watch = partial(self._interludes.look, ended_ns, usual_ns, activity, lines)
            self._interlude.guard(watch)

    @property
    def has_steps(self) -> bool:
        """Whether steps were recorded, whatever becomes of the recording."""
        return self._is_finished or (self._recorder is not None and self._recorder.has_steps)

    def finish(
        self,
        exit_status: int | None,
        note: str | None = None,
        was_stopped: bool = False,
        error: BaseException | None = None,
    ) -> None:
        """Leave the context of a program that ran in its own process and ended with ``exit_status``, by an ``error`` if
        there was one. It ``was_stopped`` if profkit ended it once it was recorded."""
        self._guard(lambda: self._end(exit_status, () if note is None else (note,), was_stopped, error))

    @property
    def _why_noted(self) -> str:
        """Noted from the beginning on, as the program may be killed."""
        return f"{self._why}: profkit recorded there"

    @property
    def _outermost(self) -> profile:
        return self if self._outer is None else self._outer._outermost

    def _begin(self) -> None:
        if self._was_used:
            say("not recording: a profile records only once; make another one")
            return
        self._was_used = True
        if profile._current is not None:
            self._outer = profile._current
            say("not recording: another profkit.profile is active and gets the steps of this one")
            return
        self._directory = self._claim() or self._directory
        self._plan = for_rank(self._plan)
        self._allowance = Allowance(is_rank=self._plan.is_rank)
        recorder = self._make_recorder(self._directory, self._plan, notes=[self._why_noted] if self._why else [])
        profile._current = self
        atexit.register(self._end_at_exit)
        self._requests.install()
        if not RunWatch.is_watching() and self._subject.variant is None:
            self._watch = RunWatch(lambda: self._directory, self._subject.roots, is_whole=False)
            self._watch.start()
        recorder.start()

    def _make_recorder(
        self, directory: Path, plan: Plan, replaces: Path | None = None, notes: Iterable[str] = ()
    ) -> Recorder:
        if self._counting is not None:
            self._counting.remove()
        self._interlude.tell(Recorder.end_here)
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
        """Recording and timing are over: end the program, record again, or wait for better steps."""
        self._termination.remove()
        if (recorder := self._recorder) is not None and recorder.choice.outdone_by == EXPLICIT:
            self._begin_better(EXPLICIT)
        elif recorder is not None and recorder.choice.was_succeeded:
            self._record_again(recorder.cycles.plan.for_cycles(1, self._plan.active), _SUCCEEDED)
        elif self._plan.stops:
            self._stop(recorder)
        elif recorder is not None:
            self._count_on(recorder)
            if (cycle := recorder.cycles.found) is not None:
                self._record_again(cycle.plan(recorder.cycles.plan), cycle.note)
            elif recorder.choice.may_be_outdone:
                self._replacement.wait()
            self._next.go_on(recorder.choice.name, recorder.thread.ident)
            self._on_over()

    def _observe_interlude(self, function: CodeType, of_steps: Collection[int]) -> bool:
        """See what ends steps below the function, if something else than steps may be recorded now."""
        recorder = self._recorder
        is_free = recorder is not None and (recorder.over or recorder.is_timing) and self._interlude.is_over
        if recorder is None or not is_free or not recorder.thread.is_current or self._next.is_wanted:
            return False
        if self._allowance.events_left < _WORTH * MANY_EVENTS:
            return False
        return self._interlude.observe(function, of_steps, sys._getframe())

    def _begin_interlude(self, site: CallSite) -> bool:
        """Record what goes on below the line instead of steps, until the next step ends, if it is known by now what
        ends the steps there. Return whether it is."""
        recorder, signal = self._recorder, self._interlude.find_signal()
        if recorder is None or signal is None:
            return False
        recorder.suspend()
        ended_by = recorder.choice.name or EXPLICIT
        plan = self._plan.for_interlude(ended_by, bool(signal), Interlude(site))
        self._interlude.begin(plan, signal, recorder.signals)
        return True

    def _make_interlude(self, plan: Plan, guard: Guard, on_over: Callable[[], None]) -> Recorder:
        directory = self._directory / INTERLUDE
        if directory.is_dir():
            for left in directory.glob(f"*{TRACE_SUFFIXES[1]}*"):  # of the try before
                left.unlink()
        else:
            create_directory(directory)
        return Recorder(
            directory,
            plan,
            self._subject,
            guard,
            self._allowance,
            on_progress=None,
            on_over=on_over,
            is_awaited=lambda: self._next.is_wanted,
            wake=self._requests.wake,
            replaces=None,
            notes=(),
        )

    def _when_interlude_is_over(self, ended: StepBoundary | None) -> None:
        """Go on timing the steps, the next of which may just have ended. If none was recorded in the time that there
        was, the next evaluation may be longer."""
        if not self._interlude.has_steps:
            self._interludes.try_again()
        if (recorder := self._recorder) is not None:
            recorder.resume(ended)

    def _count_on(self, recorder: Recorder) -> None:
        """The recording is over: the account of the run goes on with the steps behind it."""
        if self._counting is not None:
            self._counting.note_timed(*recorder.timed_behind)
            self._counting.count_by(recorder.choice.name, recorder.signals)

    def _stop(self, recorder: Recorder | None) -> None:
        """End the program now. If only calls or batches were recorded but an optimizer exists, first give it some time
        to step."""
        may_go_on = recorder is not None and recorder.choice.awaits_optimizer
        if may_go_on:
            self._replacement.wait()
        self._stopper.request(PATIENCE_S if may_go_on else 0.0)

    def _begin_window(self, signal: str) -> None:
        """Begin a requested recording: a step ended by ``signal``."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish()
        window = len(self._directories) + 1
        directory = window_directory(self._directory, window)
        self._allowance = Allowance(is_rank=self._plan.is_rank)  # the user requested the window and accepts its cost
        recorder = self._make_recorder(directory, self._plan.for_window(window, signal))
        note_window(self._directory, directory)
        recorder.start()

    def _begin_better(self, signal: str) -> None:
        """A better signal came after other steps were recorded: record its steps."""
        if self._plan.stops:
            self._stopper.request(PATIENCE_S)
        self._record_again(self._plan.for_better(signal), NOTES[signal], partial(note_outdone, signal))

    def _record_again(self, plan: Plan, note: str, mark: Callable[[Path], None] = lambda _: None) -> None:
        """Replace the recording in the directory, which stays there until enough is measured."""
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
            self._interlude.finish(self._interludes.time_ns)
            if self._why:
                self._recorder.take_back(self._why_noted)
                notes = (*notes, f"{self._why_noted}, for {format_time(self._allowance.spent_ns)}")
            self._recorder.finish(exit_status, notes, was_stopped, error)
            self._recorder = None
            self._is_finished = True
            complete(self._directories, exit_status, was_stopped)
            if len(self._directories) == 1:  # a window is named after the first directory, which must keep its name
                self._directories = [settle(self._directory)]
                self._directory = self._directories[0]
        self._finish_watch()

    def _finish_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.finish()

    def _end_at_exit(self) -> None:
        """The program exits without leaving the context."""
        self._guard(lambda: self._end(None, ("the program never left the recording: it lasted until the exit",)))

    def _let_go(self) -> None:
        if profile._current is self:
            profile._current = None
        atexit.unregister(self._end_at_exit)
        for part in (self._requests, self._next, self._replacement, self._termination):
            part.remove()
        if self._counting is not None:
            self._counting.remove()  # the last, as those before it may have been put on top of it

    def _give_up(self, error: BaseException) -> None:
        """profkit failed: leave the program alone from here on."""
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            self._let_go()
            self._finish_watch()
            say(f"{'not recording' if recorder is None else 'recording abandoned'}: {describe(error)}")
            if recorder is not None:
                recorder.abandon(PROFKIT_FAILED + describe(error))

    @staticmethod
    def _leave_to_parent() -> None:
        """In the child of a fork: leave the recording to the parent."""
        current, profile._current = profile._current, None
        if current is None or current._recorder is None:
            return
        recorder, current._recorder = current._recorder, None
        current._stopper.disown()
        with suppress(Exception):
            current._let_go()
            recorder.disown()
            current._interlude.tell(Recorder.disown)


def _tell_recorder(tell: Callable[[Recorder], None]) -> None:
    if (current := profile._current) is not None and (recorder := current._recorder) is not None:
        current._guard(lambda: tell(recorder))
        current._interlude.tell(tell)


if hasattr(os, "register_at_fork"):  # the parent continues to record, the child does not
    os.register_at_fork(
        before=lambda: _tell_recorder(Recorder.before_fork),
        after_in_parent=lambda: _tell_recorder(Recorder.after_fork),
        after_in_child=profile._leave_to_parent,
    )
