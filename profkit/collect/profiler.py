"""``profkit.profile``: records the program around which it stands, and never breaks it."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar

from profkit.collect.guard import Guard, describe, uncompiled
from profkit.collect.recorder import Progress, Recorder
from profkit.collect.schedule import Plan
from profkit.collect.subject import Subject
from profkit.run import create_directory, default_directory

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class profile:  # noqa: N801  # reads like torch.profiler.profile, whose place it takes
    """Record a few steps of a program into a run directory; a context manager or a decorator.

    ``wait`` steps pass unprofiled and are timed, ``warmup`` steps are recorded to learn which line runs what, and
    ``active`` steps are recorded to be measured; after up to thirty more timed steps everything is removed. Steps end
    where the program calls `step`, else after the optimizer's step, else at each batch of a DataLoader; where none of
    these comes for long, after each call of the model. A program without any is recorded from its start, for at most
    ``limit_s`` seconds.

    ``directory`` is made if absent (default ``traces/<target>/<time>``); ``on_progress`` is called with the phase that
    a step was of, the number of steps over and the number planned. Errors in here never reach the program: they
    become one line on stderr and a note in ``run.json``. As a decorator it records the first call.
    """

    diagnoser: ClassVar[Callable[[Path], Any] | None] = None
    """Makes a diagnosis of a run directory; set where profkit's public names are made."""

    _current: ClassVar[profile | None] = None

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        wait: int = 3,
        warmup: int = 1,
        active: int = 4,
        limit_s: float = 30.0,
        target: str | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        script = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "run"
        plan = Plan(wait=wait, warmup=warmup, active=active, limit_s=limit_s)
        self._prepare(directory, plan, Subject(("python", *sys.argv), target or script), on_progress)

    @classmethod
    def planned(cls, directory: Path, plan: Plan, subject: Subject, on_progress: Progress | None = None) -> profile:
        """For profkit's own use: what is recorded and how, in full."""
        made = cls.__new__(cls)
        made._prepare(directory, plan, subject, on_progress)
        return made

    def _prepare(
        self, directory: str | Path | None, plan: Plan, subject: Subject, on_progress: Progress | None
    ) -> None:
        self._plan, self._subject, self._on_progress = plan, subject, on_progress
        self._directory = Path(directory) if directory is not None else default_directory(subject.target or "run")
        self._guard = Guard(self._give_up)
        self._recorder: Recorder | None = None
        self._outer: profile | None = None
        self._was_used = self._is_finished = False
        self._diagnosis: Any = None

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self._directory

    @property
    def is_over(self) -> bool:
        """Whether all planned steps passed, so that nothing of the program is recorded or timed any more."""
        return self._recorder is None or self._recorder.over

    @property
    def diagnosis(self) -> Any:
        """The diagnosis of what was recorded; None as long as the recording is on, and where there is none."""
        diagnoser = type(self).diagnoser
        if self._diagnosis is None and self._is_finished and diagnoser is not None:
            try:
                self._diagnosis = diagnoser(self._directory)
            except Exception as error:
                _say(f"no diagnosis: {describe(error)}")
        return self._diagnosis

    @uncompiled
    def __enter__(self) -> profile:
        self._guard(self._begin)
        return self

    @uncompiled
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        notes = () if error is None or isinstance(error, SystemExit) else (f"the program failed: {describe(error)}",)
        self._guard(lambda: self._end(None, notes))
        return False

    def __call__(self, function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def record_first_call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if self._was_used:
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return record_first_call

    def step(self) -> None:
        """Say that a step of the program ends here."""
        self.step_with(None)

    @uncompiled
    def step_with(self, between: Callable[[], None] | None) -> None:
        """`step`, with a call of ``between`` that belongs to neither step."""
        if self._outer is not None:
            self._outer.step_with(between)
            return
        recorder = self._recorder
        if recorder is not None and not recorder.over:
            self._guard(lambda: recorder.step(between))
        elif between is not None:
            between()

    def finish(self, exit_status: int, note: str | None = None) -> None:
        """Leave the context of a program that ran as a process of its own and ended with ``exit_status``."""
        self._guard(lambda: self._end(exit_status, () if note is None else (note,)))

    def _begin(self) -> None:
        if self._was_used:
            _say("not recording: a profile records once, make another one")
            return
        self._was_used = True
        if profile._current is not None:
            self._outer = profile._current
            _say("not recording: another profkit.profile is on, which gets this one's steps")
            return
        create_directory(self._directory)
        self._recorder = Recorder(self._directory, self._plan, self._subject, self._guard, self._on_progress)
        profile._current = self
        atexit.register(self._end_at_exit)
        self._recorder.start()

    def _end(self, exit_status: int | None, notes: Iterable[str]) -> None:
        if self._recorder is not None:
            self._let_go()
            self._recorder.finish(exit_status, notes)
            self._recorder = None
            self._is_finished = True

    def _end_at_exit(self) -> None:
        """The program never left the context."""
        self._guard(lambda: self._end(None, ("the recording was never ended: it lasted until the program's exit",)))

    def _let_go(self) -> None:
        if profile._current is self:
            profile._current = None
        atexit.unregister(self._end_at_exit)

    def _give_up(self, error: BaseException) -> None:
        """Profkit itself failed: leave the program alone from here on."""
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            self._let_go()
            _say(f"{'not recording' if recorder is None else 'recording abandoned'}: {describe(error)}")
            if recorder is not None:
                recorder.abandon()
                recorder.notes.append(f"profkit failed: {describe(error)}")
                recorder.write()


def _say(line: str) -> None:
    with suppress(Exception):  # the program may have closed or replaced its stderr
        sys.stderr.write(f"profkit: {line}\n")


def _around_fork(action: Callable[[Recorder], None]) -> Callable[[], None]:
    """``action`` for the recorder of the profile that is on, if one is."""

    def act() -> None:
        current = profile._current
        if current is not None and current._recorder is not None:
            recorder = current._recorder
            current._guard(lambda: action(recorder))

    return act


def _disown_in_child() -> None:
    current, profile._current = profile._current, None
    if current is not None and current._recorder is not None:
        recorder, current._recorder = current._recorder, None
        atexit.unregister(current._end_at_exit)
        with suppress(Exception):
            recorder.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_around_fork(Recorder.before_fork),
        after_in_parent=_around_fork(Recorder.after_fork),
        after_in_child=_disown_in_child,
    )
