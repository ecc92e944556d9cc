"""Looks at the main thread's stack a few times a second, on a thread of its own, for as long as the process lives."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import ClassVar

from msgspec.structs import replace

from profkit.collect.machine.page_faults import count_run_ns
from profkit.collect.program.clocks import time
from profkit.collect.program.frames import line_of
from profkit.collect.whole_run.blocking import Blocking
from profkit.collect.whole_run.collections import Collections
from profkit.collect.whole_run.columns import Columns
from profkit.collect.whole_run.devices import Devices, read_choice
from profkit.collect.whole_run.library_frames import ON_ITS_OWN, activity_of, combine, is_base
from profkit.collect.whole_run.live import Live
from profkit.collect.whole_run.looks import Function, Line
from profkit.collect.whole_run.memory import MemoryCurve
from profkit.collect.whole_run.step_times import StepTimes
from profkit.collect.whole_run.waiting import running_for
from profkit.core.errors import ProfkitError
from profkit.core.other_threads import FramesOfThreads
from profkit.run.directory import ACCOUNT_FILE, CallSite, save
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime
from profkit.source.code import function_name, source_file, source_line
from profkit.source.index import forget_source_files
from profkit.source.surroundings import forget_surroundings, surroundings_of
from profkit.source.user_code import UserFiles

_INTERVAL_S = 0.1
"""A look takes 200 µs of CPU time, as its code is out of the caches by then: .2 % of the time at this interval."""
_EARLY, _SOON, _HALF, _LATE = 0.1, 1 / 700, 0.5, 1 / 6000
"""The first looks come at the first share of the interval, later ones once the second share of the run has passed, up
to half of the interval, and at last once the fourth has, up to all of it: 100 a second for 7 s, 20 after 35 s, 10 after
10 min. A short program would have too few, and a long one needs no more to be known as well."""
_GOLDEN, _LEAST, _VARIES = 0.6180339887, 0.75, 0.5
"""A pause is between three and five quarters of that. A fixed one would meet a program with a beat always at the same
place; multiples of the golden ratio, less their whole part, fill the range evenly (Weyl's sequence)."""
_BUSY = 0.98
"""Of the time since the look before. A thread that was on a CPU for so long slept for hardly any of it."""
_MOST_PLACES = 8
"""The program's lines kept of a stack, from the outermost on; the innermost one always is."""
_MOST_STACKS = 4096
"""Of further ones only the outermost line is kept; of those that come after twice as many, no line."""
_MOST_CODES = 20_000
_SAVED_AFTER_NS, _SAVING_SHARE, _MOST_UNSAVED_NS = 2_000_000_000, 1 / 2000, 60_000_000_000
"""The file is written every two seconds, which a program that is killed loses, or so seldom that writing takes this
share of the time: 1 ms for a usual account, 10 ms for half a megabyte. No more than a minute is lost."""

_STARTED = 19
"""The field ``starttime`` of ``/proc/self/stat``, counted from the one after the name (``proc(5)``). psutil would tell,
but must not be imported before the program, which may have a module of that name."""


OnLook = Callable[[StackActivity, Sequence[Line]], None]
"""Is told what runs and the program's lines on the stack, the caller first. It may not raise."""
_Stack = tuple[StackActivity, tuple[Line, ...]]
_Judged = tuple[StackActivity | None, Function | None] | None
"""What a function of a library does, and the one of the program; None for the one below the program."""


@dataclass(slots=True)
class _Seen:
    number: int
    time_ns: int = 0
    cpu_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    looks: int = 0
    visits: int = 0


class RunWatch:
    """Watches the main thread from `start` to `finish`, which writes the account into the directory that ``where``
    names then.

    ``roots`` are folders whose code is the program's own. ``is_whole`` says that the process has just begun, so the
    time since its start counts; else the account begins here. A fork of the process is not watched; around a fork the
    looking pauses, as Python warns of other threads there. ``live`` shows what each look tells. Others note the ends
    of steps in ``steps``.
    """

    _current: ClassVar[RunWatch | None] = None

    def __init__(
        self,
        where: Callable[[], Path],
        roots: Iterable[Path | str],
        *,
        is_whole: bool = True,
        interval_s: float = _INTERVAL_S,
        live: Live | None = None,
        steps: StepTimes | None = None,
        on_look: OnLook = lambda *_: None,
    ) -> None:
        self._on_look = on_look
        self._steps, self._counter_ns = steps, time.perf_counter_ns()
        self._where, self._is_whole, self._interval_s = where, is_whole, interval_s
        self._live, self._activity = live, StackActivity.OTHER
        self._files, self._process = UserFiles(roots), os.getpid()
        self._thread = self._working = threading.main_thread().ident or 0
        self._native = os.getpid()
        self._known: dict[int, tuple[CodeType, _Judged]] = {}
        self._functions: dict[CodeType, Function] = {}
        self._stacks: dict[_Stack, _Seen] = {}
        self._summarised: dict[tuple[StackActivity | Line, ...], _Stack] = {}
        self._columns, self._last = Columns(), -1
        self._last_lines: tuple[Line, ...] = ()
        self._entries: dict[Line, int] = {}
        self._memory, self._devices, self._blocking = MemoryCurve(), Devices(), Blocking(os.getpid())
        self._begun_ns, self._origin_ns = time.time_ns(), time.monotonic_ns()
        self._looked_ns, self._turn = 0, 0.0
        self._clock = self._find_clock()
        self._cpu_ns = self._read_cpu_ns()
        self._due_ns = _SAVED_AFTER_NS
        self._places: dict[Line, Place] = {}
        self._collections = Collections(self._thread)
        self._stopping, self._looking = _thread.allocate_lock(), _thread.allocate_lock()
        self._is_over = False

    def start(self) -> None:
        RunWatch._current = self
        if self._is_whole:  # else the program goes on without profkit
            self._collections.install()
        self._resume()

    def finish(self) -> None:
        """Stop looking and write the account; nothing in a fork, or where it never began."""
        if self._is_over or os.getpid() != self._process or RunWatch._current is not self:
            return
        self._suspend()
        self._is_over, RunWatch._current = True, None
        self._collections.remove()
        with suppress(Exception):  # the program's own end matters more, and its exit status
            self._look()
            self._show(is_over=True)
            self._save()
            forget_surroundings()

    @classmethod
    def is_watching(cls) -> bool:
        """Whether this process is watched already."""
        return cls._current is not None

    @classmethod
    def before_fork(cls) -> None:
        if cls._current is not None:
            cls._current._suspend()

    @classmethod
    def after_fork(cls) -> None:
        """In the parent: go on."""
        if cls._current is not None:
            cls._current._resume()

    @classmethod
    def forget(cls) -> None:
        """In the child of a fork."""
        cls._current = None

    def _resume(self) -> None:
        self._stopping.acquire()
        self._looking.acquire()
        _thread.start_new_thread(self._run, ())

    def _suspend(self) -> None:
        """Wait until the looking thread has ended."""
        self._stopping.release()
        with self._looking:
            pass

    def _run(self) -> None:
        try:
            while not self._stopping.acquire(timeout=self._pause_s):
                self._look_and_save()
            self._stopping.release()
        except Exception:  # noqa: S110  # nobody could handle it, and Python would print it into the program's output
            pass
        finally:
            self._looking.release()

    @property
    def _pause_s(self) -> float:
        self._turn = (self._turn + _GOLDEN) % 1
        run_s, most_s = self._looked_ns * 1e-9, self._interval_s
        wanted_s = max(most_s * _EARLY, min(run_s * _SOON, most_s * _HALF), min(run_s * _LATE, most_s))
        return wanted_s * (_LEAST + _VARIES * self._turn)

    def _look_and_save(self) -> None:
        self._look()
        self._devices.look(self._looked_ns)
        self._show()
        if self._looked_ns >= self._due_ns:
            self._read_new_places()  # parses each file once, which takes longer than all else
            begun_ns = time.thread_time_ns()
            with suppress(OSError, ProfkitError):
                self._save()
            pause_ns = int((time.thread_time_ns() - begun_ns) / _SAVING_SHARE)
            self._due_ns = self._looked_ns + min(max(pause_ns, _SAVED_AFTER_NS), _MOST_UNSAVED_NS)

    def _show(self, *, is_over: bool = False) -> None:
        if self._live is not None:
            activity = None if is_over else self._activity
            self._live.look(self._looked_ns, activity, self._memory.latest, self._devices.taken)

    def _look(self) -> None:
        stack, thread = self._read_running()
        self._follow(thread)
        now_ns, cpu_ns = time.monotonic_ns() - self._origin_ns, self._read_cpu_ns()
        may_have_slept = cpu_ns - self._cpu_ns < _BUSY * (now_ns - self._looked_ns)
        if stack[0] is StackActivity.OTHER and may_have_slept:
            stack = self._blocking.read() or stack[0], stack[1]
        self._activity = stack[0]
        collected_ns = min(self._collections.take_ns(), now_ns - self._looked_ns)
        if collected_ns and stack[0] is not StackActivity.PROFKIT:
            self._add((StackActivity.COLLECTING, stack[1]), self._looked_ns + collected_ns, self._cpu_ns + collected_ns)
        self._add(stack, now_ns, cpu_ns)
        self._memory.look(now_ns)
        if stack[1] != self._last_lines:
            self._note_entries(stack[1])
            self._last_lines = stack[1]
        if thread == self._thread:
            self._on_look(*stack)

    def _read_running(self) -> tuple[_Stack, int]:
        """What runs, and on which thread. No frame is held any longer: it would keep its values alive."""
        with FramesOfThreads() as innermost:
            running = running_for(self._thread, innermost)
            innermost.clear()
            return self._read(running.frames), running.thread

    def _add(self, stack: _Stack, until_ns: int, cpu_ns: int) -> None:
        """The stack had the time since the one before, and the CPU up to this reading."""
        seen = self._entry(stack)
        if seen.number != self._last and (not seen.visits or stack[1] != self._last_lines):
            seen.visits += 1  # what a line does may change while it is at work; that is no new visit
        if not seen.looks:
            seen.first_ns = until_ns
        seen.looks, seen.last_ns = seen.looks + 1, until_ns
        seen.time_ns += until_ns - self._looked_ns
        seen.cpu_ns += cpu_ns - self._cpu_ns
        self._columns.add(self._looked_ns, until_ns, seen.number)
        self._looked_ns, self._cpu_ns, self._last = until_ns, cpu_ns, seen.number

    def _note_entries(self, lines: tuple[Line, ...]) -> None:
        """Count each line below those that the look before had, too."""
        same = 0
        for line, before in zip(lines, self._last_lines, strict=False):
            if line != before:
                break
            same += 1
        for line in lines[same:]:
            if line in self._entries or len(self._entries) < _MOST_STACKS:
                self._entries[line] = self._entries.get(line, 0) + 1

    def _entry(self, stack: _Stack) -> _Seen:
        if (seen := self._stacks.get(stack)) is not None:
            return seen
        if len(self._stacks) >= _MOST_STACKS:
            stack = stack[0], (stack[1][:1] if len(self._stacks) < 2 * _MOST_STACKS else ())
        return self._stacks.setdefault(stack, _Seen(len(self._stacks)))

    def _follow(self, thread: int) -> None:
        """The main thread waits for this one from here on, or for none. What the CPU did for it since the last look is
        not known."""
        if thread == self._working:
            return
        known = threading._active.get(thread)  # type: ignore[attr-defined]  # not by its lock, which the program may hold
        self._working, self._native = thread, getattr(known, "native_id", None) or 0
        self._blocking = Blocking(self._native)
        self._cpu_ns = self._read_cpu_ns()

    def _read(self, frames: Iterable[FrameType]) -> _Stack:
        """What the stack shows, innermost first, and the program's lines on it, the caller first. No frame outlives
        this call."""
        seen: list[StackActivity | Line] = []
        judged = self._known
        for caller in frames:
            code = caller.f_code
            _, known = judged.get(id(code)) or self._judge(code)
            if known is None:
                break
            activity, function = known
            if activity is StackActivity.PROFKIT and seen:
                continue  # profkit wraps what the program calls: only at the end of a stack is the time its own
            if activity is not None:
                seen.append(activity)
            if function is not None:
                seen.append((function, line_of(caller)))
        shown = tuple(seen)
        if (summary := self._summarised.get(shown)) is None:
            if len(self._summarised) >= _MOST_STACKS:
                self._summarised.clear()
            summary = self._summarised[shown] = _summarise(reversed(seen))
        return summary

    def _judge(self, code: CodeType) -> tuple[CodeType, _Judged]:
        """Of a function that was not seen before, which is kept, as another could get its identity."""
        if len(self._known) >= _MOST_CODES:
            self._known.clear()
            self._functions.clear()
        judged: _Judged = None
        if not is_base(code):
            is_user = self._files[code.co_filename]
            function = self._functions.setdefault(code, Function(code)) if is_user else None
            judged = None if is_user else activity_of(code), function
        self._known[id(code)] = found = code, judged
        return found

    def _find_clock(self) -> int | None:
        """The clock of the main thread's CPU time, which lives as long as the process."""
        with suppress(AttributeError, OSError):
            return int(time.pthread_getcpuclockid(self._thread))
        return None

    def _read_cpu_ns(self) -> int:
        """The CPU time of the thread that works; 0 always where the system does not say. A clock of a thread that may
        have ended must not be asked for: glibc reads freed memory then."""
        if self._working != self._thread:
            return count_run_ns(self._native) or 0
        return 0 if self._clock is None else time.clock_gettime_ns(self._clock)

    def _save(self) -> None:
        save(self._where(), ACCOUNT_FILE, self._account())

    def _account(self) -> RunAccount:
        self._read_new_places()
        lines: dict[Line, int] = {}
        stacks = []
        for (activity, places), seen in list(self._stacks.items()):
            numbers = tuple(lines.setdefault(line, len(lines)) for line in places)
            times = seen.time_ns, seen.cpu_ns, seen.first_ns, seen.last_ns, seen.looks, seen.visits
            stacks.append(StackTime(activity.value, numbers, *times))
        return RunAccount(
            started_ns=_started_ns() if self._is_whole else 0,
            begun_ns=self._begun_ns,
            until_ns=self._begun_ns + self._looked_ns,
            places=tuple(self._place(line) for line in lines),
            stacks=tuple(stacks),
            column_ns=self._columns.column_ns,
            columns=self._columns.taken(),
            is_over=self._is_over,
            memory=self._memory.taken(),
            devices=self._devices.taken(),
            no_devices=self._devices.reason,
            choice=read_choice(),
            steps=self._steps.taken(self._counter_ns) if self._steps is not None else (),
        )

    def _read_new_places(self) -> None:
        """Of lines that were not seen before. What surrounds the lines of a file is kept until the end."""
        for _, lines in list(self._stacks):
            for line in lines:
                if line not in self._places:
                    self._places[line] = _read_place(line[0].code, line[1])
        forget_source_files()

    def _place(self, line: Line) -> Place:
        return replace(self._places[line], entries=self._entries.get(line, 0))


def _summarise(stack: Iterable[StackActivity | Line]) -> _Stack:
    """What a stack shows, the caller first, and the program's lines on it: up to the one that calls the library for
    what that does on its own."""
    shown, lines = StackActivity.OTHER, list[Line]()
    calling = 0
    for frame in stack:
        if isinstance(frame, tuple):
            lines.append(frame)
        elif (after := combine(shown, frame)) is not shown:
            shown, calling = after, len(lines)
    known = lines[:calling] if shown in ON_ITS_OWN and calling else lines
    return shown, tuple(known if len(known) <= _MOST_PLACES else [*known[: _MOST_PLACES - 1], known[-1]])


def _read_place(code: CodeType, line: int) -> Place:
    file = source_file(code)
    around = surroundings_of(file, line)
    site = CallSite(file, line, function_name(code), source_line(file, line))
    return Place(site, around.loop, around.evaluates, around.trains, around.without_gradients)


def _started_ns() -> int:
    """When the process was started, since the epoch, to the hundredth of a second; 0 where Linux does not say. The
    kernel counts from the start of the machine, as ``CLOCK_BOOTTIME`` does; ``btime`` in ``/proc/stat`` has no
    fractions of a second."""
    with suppress(AttributeError, OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(fields[_STARTED]) * 10**9 // os.sysconf("SC_CLK_TCK")
        return int(time.time_ns() - age_ns)
    return 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=RunWatch.before_fork, after_in_parent=RunWatch.after_fork, after_in_child=RunWatch.forget
    )
