"""Running a user's program, and recording it.

It does not import PyTorch before the program does: the order of setup (threads, devices, allocator) matters.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NoReturn

import profkit.collect.program.clocks  # noqa: F401  # before the program replaces any
from profkit.collect.launch.import_watch import watch_for_torch
from profkit.collect.launch.main_module import Program, load_module, load_script, split_command
from profkit.collect.launch.unusual_ends import catch_unusual_ends
from profkit.collect.program.frames import line_of, walk_up
from profkit.collect.program.guard import describe, describe_end, say
from profkit.collect.ranks.identity import RankWatch
from profkit.collect.ranks.launchers import read_place
from profkit.collect.whole_run.live import Live, Pace
from profkit.collect.whole_run.looks import Line
from profkit.collect.whole_run.step_times import StepTimes
from profkit.collect.whole_run.watch import RunWatch
from profkit.run.directory import FAILED, PROFKIT_FAILED, RUN_FILE, Run, save
from profkit.run.plan import ACTIVE_STEPS, AFTER_STEPS, BEST_SIGNAL, FULL_RANKS, WAIT_STEPS, WARMUP_STEPS, Plan, Subject
from profkit.run.whole_run import StackActivity
from profkit.source.code import PROFKIT

if TYPE_CHECKING:
    from profkit.collect.boundaries.changes import Change
    from profkit.collect.recorder.change_watch import ChangeWatch
    from profkit.collect.recorder.profiler import profile

INTERRUPTED = 130
"""The exit status that shells report for a program that was interrupted."""
_ENTRY = "profkit.collect.launch.entry"
_PR_SET_PDEATHSIG = 1
"""From ``linux/prctl.h``: sets the signal that a process gets when its parent ends."""

_PROGRESS = {
    "opening": "found the program's steps; timing some of them without the profiler",
    "located": "recording: step {done} of {total}",
    "active": "recording: step {done} of {total}",
    "after": "recorded; the program goes on",
}
"""What a terminal shows, by phase."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the command line names and end as it ends."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parse(given)
    child = Child(options)
    _end_with_launcher()
    catch_unusual_ends(child, _recording_anew(given))
    _give_room(options.module)
    _name_own_frames()
    try:
        program = load_module(options.target) if options.module else load_script(options.target)
        sys.orig_argv[1:] = [*(["-m"] if options.module else []), options.target, *options.arguments]
        child.watch_run(program)
        child.watch_for_torch(program)
        program.enter(options.arguments)
        program.run()
    except SystemExit as leaving:
        child.leave(leaving)
        raise
    except BaseException as error:
        child.fail(error)
    child.finish_with_threads(0)


class Child:
    """The recording of the program: it begins when the program has imported torch and ends with the program."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._profile: profile | None = None
        self._failure: str | None = None
        self._watch: RunWatch | None = None
        self._changes: ChangeWatch | None = None
        self._steps = StepTimes()
        self._is_finished = False
        self._process = os.getpid()

    @property
    def has_steps(self) -> bool:
        return self._profile is not None and self._profile.has_steps

    def watch_run(self, program: Program) -> None:
        """Account for the whole run from here on."""
        options, live = self._options, None
        if options.live or options.metrics:
            metrics = Path(options.metrics) if options.metrics else None
            live = Live(options.live, metrics, lambda: Pace() if self._changes is None else self._changes.pace)
        roots = (os.path.dirname(program.code.co_filename),)
        self._watch = RunWatch(lambda: self._directory, roots, live=live, steps=self._steps, on_look=self._look)
        self._watch.start()

    def _look(self, activity: StackActivity, lines: Sequence[Line]) -> None:
        if self._profile is not None:
            self._profile.look(activity, lines)

    def watch_for_torch(self, program: Program) -> None:
        begin = self._look_for_changes if self._options.watch_only else self._begin
        if not self._options.watch_only or read_place(os.environ) is None:  # ranks would look at different steps
            watch_for_torch(lambda: self._try(begin, program))

    def leave(self, leaving: SystemExit) -> None:
        """The program called ``sys.exit``, or profkit ended it once it was recorded."""
        stopping = sys.modules.get("profkit.collect.recorder.early_end")
        if stopping is not None and isinstance(leaving, stopping.RecordingComplete):
            self.finish(stopping.STOPPED, "the program was ended once it was recorded, as asked", was_stopped=True)
        else:
            self.finish_with_threads(_status_of(leaving.code))

    def finish_with_threads(self, status: int) -> None:
        """The main thread is at its end. Python waits for the program's other threads, which may still train, and only
        then calls what is registered with ``atexit``, the latest first."""
        main = threading.main_thread()
        if any(not (thread.daemon or thread is main) for thread in threading.enumerate()):
            atexit.register(self.finish, status)
        else:
            self.finish(status)

    def finish(
        self,
        status: int | None,
        note: str | None = None,
        was_stopped: bool = False,
        error: BaseException | None = None,
    ) -> None:
        if self._is_finished or os.getpid() != self._process:  # a fork of the program that went on to its end
            return
        self._is_finished = True
        if self._changes is not None:
            self._changes.remove()
        if self._profile is not None:
            self._profile.finish(status, note, was_stopped, error)
            self._finish_watch()
            return
        why = () if self._options.watch_only else (self._failure or _why_nothing_was_recorded(),)
        notes = (*why, *([note] if note else []))
        directory = Path(self._options.directory)
        identity = RankWatch(directory).identity
        own_ns, childrens_ns = _cpu_ns()
        run = Run(
            self._command,
            target=self._options.target,
            identity=identity,
            exit_status=status,
            notes=notes,
            own_cpu_ns=own_ns,
            children_cpu_ns=childrens_ns,
        )
        with suppress(OSError):  # the program's own end matters more
            save(directory, RUN_FILE, run)
        self._finish_watch()

    def fail(self, error: BaseException) -> NoReturn:
        """Show the program's own traceback and let Python end the process as it would without profkit."""
        interrupted = isinstance(error, KeyboardInterrupt)
        self.finish(INTERRUPTED if interrupted else 1, f"{FAILED}{describe_end(error)}", error=error)
        _strip(error, set())
        if self._options.module:
            error.__traceback__ = _below(sys._getframe(), error.__traceback__)
        _show(error)
        if not interrupted:
            sys.exit(1)
        sys.excepthook = lambda *_: None  # raised again, as Python then ends the process by the signal
        raise error

    def _finish_watch(self) -> None:
        if self._watch is not None:
            self._watch.finish()

    @property
    def _directory(self) -> Path:
        """Where the recording is, or is to be."""
        return Path(self._options.directory) if self._profile is None else self._profile.directory

    @property
    def _command(self) -> tuple[str, ...]:
        how = ("-m",) if self._options.module else ()
        return ("python", *how, self._options.target, *self._options.arguments)

    def _try(self, begin: Callable[[Program], None], program: Program) -> None:
        """Begin, unless profkit fails: the program's module of a library's name is all that it takes."""
        try:
            begin(program)
        except Exception as error:
            self._failure = PROFKIT_FAILED + describe(error)
            say(f"not recording: {describe(error)}")

    def _begin(self, program: Program) -> None:
        self._enter(program, self._plan)

    def _look_for_changes(self, program: Program) -> None:
        from profkit.collect.recorder.change_watch import ChangeWatch

        self._changes = ChangeWatch(lambda change, signal: self._look_closer(program, change, signal), self._steps)
        self._changes.install()

    def _look_closer(self, program: Program, change: Change, signal: str) -> None:
        """Record a window: something changed."""
        from profkit.collect.recorder.change_watch import plan_of_window

        self._try(lambda of: self._enter(of, plan_of_window(self._plan, change, signal), change.note), program)

    def _enter(self, program: Program, plan: Plan, why: str = "") -> None:
        from profkit.collect.recorder.change_watch import ChangeWatch
        from profkit.collect.recorder.profiler import profile

        roots = (os.path.dirname(program.code.co_filename),)
        subject = Subject(self._command, self._options.target, roots=roots)
        directory = Path(self._options.directory)
        changes, announce = self._changes, Announcer()
        if changes is None:
            counting = ChangeWatch(lambda *_: None, self._steps)
            self._profile = profile.planned(directory, plan, subject, announce, counting=counting)
        else:
            progress = changes.counting(announce)
            self._profile = profile.planned(directory, plan, subject, progress, why=why, on_over=changes.count_on)
        self._profile.__enter__()

    @property
    def _plan(self) -> Plan:
        options = self._options
        return Plan(
            wait=options.wait,
            warmup=options.warmup,
            active=options.active,
            after=options.wait if options.stop_after_recording else AFTER_STEPS,
            steps_from=None if options.steps_from == BEST_SIGNAL else options.steps_from,
            at_step=options.at_step,
            stops=options.stop_after_recording,
            ranks=options.ranks,
            samples_stacks=options.samples_stacks,
        )


class Announcer:
    """Shows the progress of a recording on a terminal; call it with each step's phase, the number of steps over and the
    number of all steps.

    It writes whole lines, each once: redrawing a line in place would garble the program's output.
    """

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._last = ("", 0)

    def __call__(self, phase: str, done: int, total: int) -> None:
        if (phase, done) == self._last:  # thousands of steps are timed after the recording
            return
        self._last = phase, done
        line = _PROGRESS.get(phase, "").format(done=done, total=total)
        if not line or line in self._said:
            return
        self._said.add(line)
        stream = sys.__stderr__
        with suppress(OSError, ValueError):  # the program may have closed it
            if stream is not None and stream.isatty():
                stream.write(f"profkit: {line}\n")
                stream.flush()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {_ENTRY}")
    parser.add_argument("--directory", required=True)
    parser.add_argument("--wait", type=int, default=WAIT_STEPS)
    parser.add_argument("--warmup", type=int, default=WARMUP_STEPS)
    parser.add_argument("--active", type=int, default=ACTIVE_STEPS)
    parser.add_argument("--steps-from", default=BEST_SIGNAL)
    parser.add_argument("--at-step", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=FULL_RANKS)
    parser.add_argument("--stop-after-recording", action="store_true")
    parser.add_argument("--module", action="store_true")
    parser.add_argument("--watch-only", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--metrics", default="")
    parser.add_argument("--samples-stacks", action="store_true")
    return split_command(parser, arguments)


def _why_nothing_was_recorded() -> str:
    if "torch" in sys.modules:
        return "the program loaded torch past Python's imports: profkit cannot record that"
    own_ns, childrens_ns = _cpu_ns()
    if childrens_ns > own_ns:
        return "the program never imported torch: its child processes did the work, and those are not recorded"
    return "the program never imported torch: there was nothing to record"


def _cpu_ns() -> tuple[int, int]:
    """CPU time of this process, and of those that it started and waited for."""
    times = os.times()
    return int((times.user + times.system) * 1e9), int((times.children_user + times.children_system) * 1e9)


def _recording_anew(given: Sequence[str]) -> list[str]:
    """Python's arguments that record another program as these do this one, up to its name."""
    options = [one for one in given[: list(given).index("--")] if one != "--module"]
    return ["-m", _ENTRY, *options]


def _end_with_launcher() -> None:
    """Make this process die with profkit's. A launcher that gives up on its ranks kills the process that it started,
    which is profkit's, not this one, which runs the program. A rank that lived on would keep its device."""
    if sys.platform == "linux" and read_place(os.environ) is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _give_room(is_module: bool) -> None:
    """Raise the recursion limit by the frames that profkit adds below the program, so that it can recurse as deep as
    without profkit. Before Python 3.12 a call of ``exec`` counts too, and ``python -m`` makes one."""
    depth = sum(1 for _ in walk_up(sys._getframe(1))) + 1  # one more frame will run the program
    counted = int(sys.version_info < (3, 12))
    extra = depth + 2 * counted - (2 + counted if is_module else 0)
    sys.setrecursionlimit(sys.getrecursionlimit() + extra)


def _name_own_frames() -> None:
    """Let `inspect` know the modules of the frames below the program. For a frame of a file that belongs to no module
    it goes through all modules: each ``inspect.stack()`` of a program took 8.5 ms instead of 0.04."""
    importlib.import_module(_ENTRY)  # known as ``__main__`` so far, which the program replaces
    known = vars(inspect).get("modulesbyfile")
    if isinstance(known, dict):
        known.setdefault("<frozen runpy>", "runpy")


def _status_of(code: object) -> int:
    """The exit status that Python derives from ``sys.exit(code)``."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _show(error: BaseException) -> None:
    """Show the program's error as Python does when it ends a program, except that profkit's frames are not there."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception as in_hook:
        _strip(in_hook, set())
        in_hook.__context__ = None
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(in_hook), in_hook, in_hook.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)


def _strip(error: BaseException | None, seen: set[int]) -> None:
    """Remove profkit's frames from the tracebacks of an exception and its causes."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    error.__traceback__ = _without_own(error.__traceback__)
    _strip(error.__cause__, seen)
    _strip(error.__context__, seen)


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(PROFKIT):
            kept.append(trace)
        trace = trace.tb_next
    for this, following in zip(kept, [*kept[1:], None], strict=False):
        this.tb_next = following
    return kept[0] if kept else None


def _below(frame: FrameType | None, trace: TracebackType | None) -> TracebackType | None:
    """The traceback with the frames of runpy in front, as every traceback under ``python -m`` has."""
    for caller in walk_up(frame):
        if not caller.f_code.co_filename.startswith(PROFKIT):
            trace = TracebackType(trace, caller, caller.f_lasti, line_of(caller))
    return trace
