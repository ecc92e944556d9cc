"""Marks in the trace that show which line of the user's code runs what.

`LineTracer` opens an event named ``profkit.line#<n>`` around each line of user code that runs, where n is the line's
index in `LineTracer.callsites`. A line that calls a function stays open while the function's lines open their own, so
the innermost mark around an operator is the exact line that called it. That includes ``a * b`` and ``x[i]``, which a
profiler of calls cannot see.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

import torch

from profkit.collect.machine.patience import Patience
from profkit.collect.program.frames import SUSPENDS, forget_locals, line_of, traced_frame, walk_up
from profkit.collect.program.guard import uncompiled
from profkit.collect.program.living import living
from profkit.collect.sessions.host_marks import Mark, open_mark
from profkit.core.marks import LINE_MARK, UNMARKED
from profkit.core.other_threads import FramesOfThreads
from profkit.run.directory import CallSite
from profkit.source.code import function_name, source_file, source_line

_Trace = Callable[[FrameType, str, Any], Any]
_PASSES = {torch.autograd.backward.__code__: "tensors", torch.autograd.grad.__code__: "outputs"}
"""The functions that begin a backward pass, and the argument with the tensors that it begins at."""
_PASS_NAMES = frozenset(code.co_name for code in _PASSES)
_FRAME_OF: dict[type, str] = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
"""Names of the code that is a part of a line of another function. From Python 3.12 on most have none of their own."""
_SHORTER = " (record a shorter step, --at-step N)"
_TICK = 256
"""Callbacks between two checks of the clock."""
_CALLS_PER_LINE = 10
"""This many unmarked calls inside libraries cost as much as one marked line."""
_MOST_OF_ONE = 0.5
"""The largest share of the lines for one function: a loop over plain numbers must leave some for later code."""
_LEAST_OF_ONE = 1 / 16
"""For a comprehension, whose work is part of a marked line anyway, once half of the lines are spent by several."""
_LAST = 1 / 8
"""Of the lines: of these any function gets no more than `_LEAST_OF_ONE`. Otherwise three loops over plain numbers, in
three functions, would spend them all."""


class LineTracer:
    """Marks the lines of user code on the thread that starts it, until it is stopped or its budget is spent.

    ``max_lines`` and ``max_seconds`` are the budget per start. The lines are a promise of cost, which no clock measures
    better. The seconds are patience: a step may wait long for something else (`profkit.collect.machine.patience`).

    When the budget is spent, ``has_ended`` is set and ``on_end`` is called from the last line's callback. Once a
    function has run half of the lines, its lines are no longer marked; its work is reported at the line that calls it.
    ``on_backward`` is called before a backward pass, with the tensors that it begins at. ``notes`` say why tracing
    ended early or could not begin; ``ended`` is the last of them.
    """

    def __init__(
        self,
        is_user: Mapping[str, bool],
        max_lines: int = 300_000,
        max_seconds: float = 30.0,
        patience: Callable[[float], Patience] = Patience,
        on_end: Callable[[], None] = lambda: None,
        on_backward: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.active = self.has_ended = False
        self.notes: list[str] = []
        self._is_user, self._on_end, self._on_backward = is_user, on_end, on_backward
        self.max_lines, self._max_seconds, self._make_patience = max_lines, max_seconds, patience
        self._sites: dict[tuple[str, int, str], int] = {}
        self._lines: set[tuple[str, int]] = set()
        self._traces: dict[int, tuple[CodeType, _Trace]] = {}
        self._open: list[tuple[int, Mark]] = []
        self._awaited: tuple[CodeType, int, Callable[[], None]] | None = None
        self._marked: dict[int, int] = {}  # by the identity of the code: to hash one takes longer than all else
        self._global_trace: _Trace = self._on_call
        self._lines_left = self._ticks = self._thread = 0
        self._patience = patience(max_seconds)
        self._is_expired = False
        self._saw_suspending = self._is_set = self._leaves_some = self._has_kept_some = False

    @property
    def ended(self) -> str:
        return self.notes[-1] if self.notes else ""

    @property
    def callsites(self) -> tuple[CallSite, ...]:
        """The lines marked so far; a mark's number is the index."""
        return tuple(CallSite(file, line, name, source_line(file, line)) for file, line, name in self._sites)

    def was_executed(self, file: str, line: int) -> bool:
        """Whether the line has been marked."""
        return (file, line) in self._lines

    @property
    def spent_lines(self) -> int:
        """How much of the budget is spent since the last start."""
        return self.max_lines - self._lines_left

    @property
    def has_spent_most(self) -> bool:
        """Whether all lines are marked, or would soon have been if the last were not kept for other functions."""
        return self.has_ended or self._has_kept_some

    def start(self, frame: FrameType | None, max_lines: int | None = None, *, leaves_some: bool = False) -> bool:
        """Mark the lines of ``frame``, its callers and everything that they call, at most ``max_lines`` from here on.
        If it ``leaves_some``, several loops over plain numbers do not spend them all. Who waits for the end of them,
        as the prologue does, wants none to be left. Returns False if another tracer is set."""
        self._leaves_some, self._has_kept_some = leaves_some, False
        self.max_lines = self.max_lines if max_lines is None else max_lines
        if self.active or sys.gettrace() is not None:
            self._note("a debugger or a coverage tool traces the program: lines could not be located")
            return False
        self.active, self.has_ended, self._thread = True, False, threading.get_ident()
        self._lines_left, self._ticks = self.max_lines, _TICK
        self._patience, self._is_expired = self._make_patience(self._max_seconds), False
        self._marked = {}
        for caller in self._user_frames(frame):
            if caller.f_trace is None:
                caller.f_trace = self._trace_of(caller.f_code)
        self.resume(frame)
        return True

    def await_line(self, code: CodeType, line: int, on_line: Callable[[], None]) -> None:
        """Call ``on_line`` from the callback whenever that line of the function begins."""
        self._awaited = code, line, on_line
        self._traces.pop(id(code), None)

    def expire(self) -> None:
        """End the tracing, from any thread. It ends at one of the next lines or calls, even in functions whose lines
        are no longer marked."""
        self._is_expired = True
        self._ticks = 0  # else it would be noticed after as many lines as calls of a used-up function seldom run
        with FramesOfThreads() as innermost:
            for frame in walk_up(innermost.get(self._thread)):
                if frame.f_trace is not None:
                    frame.f_trace_lines = True

    def pause(self) -> None:
        """Stop tracing for a moment and close all marks, so that none extends over what comes next."""
        if sys.gettrace() == self._global_trace:
            sys.settrace(None)
        elif self._is_set:  # Python removes a callback that overflows the stack
            self._note("lines were located until the program recursed as deep as it may or set a tracer of its own")
        self._is_set = False
        while self._open:
            self._open.pop()[1].__exit__(None, None, None)

    def resume(self, frame: FrameType | None) -> None:
        """Continue tracing; reopen the marks of the lines that ``frame`` and its callers are in, outermost first."""
        if self.active and sys.gettrace() is None:
            marked = [caller for caller in self._user_frames(frame) if caller.f_trace and caller.f_trace_lines]
            for caller in reversed(marked):
                self._enter(id(caller), self._name(caller.f_code, line_of(caller)))
            sys.settrace(self._global_trace)
            self._is_set = True

    def stop(self, frame: FrameType | None) -> None:
        """Close all marks and remove the tracing from the frames that still run."""
        self._uninstall()
        traced = {trace for _, trace in self._traces.values()}
        in_callback = traced_frame(frame)
        for caller in self._user_frames(frame):
            if caller is in_callback:  # Python writes its cached locals back after the callback
                caller.f_trace = None
                caller.f_trace_lines = True
            else:
                self._clean(caller, traced)
        if self._saw_suspending:
            self._saw_suspending = False
            for suspended in suspended_frames():
                if suspended.f_trace in traced:
                    self._clean(suspended, traced)

    @property
    def _has_stopped(self) -> bool:
        """Whether a call from within a callback has stopped it."""
        return not self.active

    def _uninstall(self) -> None:
        self.pause()
        self.active = False

    @staticmethod
    def _clean(frame: FrameType, traced: set[_Trace]) -> None:
        if frame.f_trace in traced:
            frame.f_trace = None
            frame.f_trace_lines = True
        forget_locals(frame)

    def _user_frames(self, frame: FrameType | None) -> list[FrameType]:
        return [caller for caller in walk_up(frame) if self._is_user[caller.f_code.co_filename]]

    @uncompiled
    def _on_call(self, frame: FrameType, _event: str, _argument: Any) -> _Trace | None:
        """The interpreter calls this for every call of a Python function, and when a generator resumes."""
        try:
            code = frame.f_code
            if not self._is_user[code.co_filename]:
                self._ticks -= 1
                if self._ticks <= 0:
                    self._lines_left -= _TICK // _CALLS_PER_LINE
                    self._look_at_budget()
                if code.co_name in _PASS_NAMES and (roots := _PASSES.get(code)):
                    self._on_backward(frame.f_locals.get(roots))
                return None
            if self._marked.get(id(code), 0) > self._most_of(code):
                return None
            trace = self._trace_of(code)
            if code.co_flags & SUSPENDS:  # resuming a line raises no line event: reopen its mark here
                self._saw_suspending = True
                trace(frame, "line", None)
            return trace
        except Exception as error:  # it would reach the program
            self._give_up(error)
            return None

    def _trace_of(self, code: CodeType) -> _Trace:
        found = self._traces.get(id(code))
        if found is None:
            found = self._traces[id(code)] = (code, self._make_trace(code))
        return found[1]

    def _make_trace(self, code: CodeType) -> _Trace:
        """The callback for the lines of one code object. It runs for every line, so its data is in its own scope."""
        names: dict[int, str] = {}
        opened, number = self._open, id(code)
        awaited, on_line = self._awaited_in(code)

        @uncompiled
        def on_event(frame: FrameType, event: str, _: Any) -> _Trace | None:
            if not self.active:
                return None
            try:
                if event == "exception":  # the line is not over: its frame handles the exception or returns
                    return on_event
                key = id(frame)
                if opened and opened[-1][0] == key:
                    opened.pop()[1].__exit__(None, None, None)
                else:
                    self._unwind(key)
                if event == "line":
                    line = frame.f_lineno
                    if line == awaited:
                        on_line()
                        if self._has_stopped:
                            return None
                    self._enter(key, names.get(line) or names.setdefault(line, self._name(code, line)))
                    marked = self._marked[number] = self._marked.get(number, 0) + 1
                    if marked > self._most_of(code) and len(opened) > 1 and not self._is_expired:
                        self._pass_by(frame)
                    self._spend_line()
            except Exception as error:  # it would reach the program
                self._give_up(error)
            return on_event if self.active else None

        return on_event

    def _awaited_in(self, code: CodeType) -> tuple[int, Callable[[], None]]:
        """The line of the function that is awaited, 0 if none is."""
        if self._awaited is not None and self._awaited[0] is code:
            return self._awaited[1:]
        return 0, lambda: None

    def _enter(self, key: int, name: str) -> None:
        mark = open_mark(name)
        mark.__enter__()
        self._open.append((key, mark))

    def _most_of(self, code: CodeType) -> float:
        """How many lines of this function are marked."""
        left = self._lines_left
        if not self._leaves_some or left > _MOST_OF_ONE * self.max_lines:
            return _MOST_OF_ONE * self.max_lines
        is_small = code.co_name in _COMPREHENSIONS or left <= _LAST * self.max_lines
        return (_LEAST_OF_ONE if is_small else _MOST_OF_ONE) * self.max_lines

    def _pass_by(self, frame: FrameType) -> None:
        """Stop marking lines of a running function: the mark of the line that calls it covers the rest."""
        self._has_kept_some |= self._leaves_some and self._lines_left <= _LAST * self.max_lines
        self._open.pop()[1].__exit__(None, None, None)
        with open_mark(UNMARKED):
            frame.f_trace_lines = False
        name = function_name(frame.f_code)
        if frame.f_code.co_name not in _COMPREHENSIONS:
            self._note(f"{name} runs more lines than are located: its later work is reported at the line that calls it")

    def _unwind(self, key: int) -> None:
        """Close the mark of the frame ``key``, if it has one, and all marks opened since."""
        while any(owner == key for owner, _ in self._open):
            self._open.pop()[1].__exit__(None, None, None)

    def _name(self, code: CodeType, line: int | None) -> str:
        site = (source_file(code), line or code.co_firstlineno, function_name(code))
        self._lines.add(site[:2])
        return f"{LINE_MARK}{self._sites.setdefault(site, len(self._sites))}"

    def _spend_line(self) -> None:
        self._lines_left -= 1
        self._ticks -= 1
        if self._lines_left <= 0 or self._ticks <= 0:
            self._look_at_budget()

    def _look_at_budget(self) -> None:
        self._ticks = _TICK
        if self._lines_left <= 0:
            self._end(f"lines were located for the first {self.max_lines:,} lines that ran, and no longer{_SHORTER}")
        elif self._is_expired:
            self._end(f"lines were located until the recording had grown large, and no longer{_SHORTER}")
        elif self._patience.is_over():
            self._end(f"lines were located for the first {self._max_seconds:.0f} s, and no longer{_SHORTER}")

    def _end(self, note: str) -> None:
        self._note(note)
        self._uninstall()
        self.has_ended = True
        self._on_end()

    def _give_up(self, error: Exception) -> None:
        self._end(f"locating lines failed: {type(error).__name__}: {error}")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def suspended_frames() -> list[FrameType]:
    """Frames of suspended generators and coroutines, found through the garbage collector's list."""
    frames = [getattr(thing, _FRAME_OF[type(thing)]) for thing in living(*_FRAME_OF)]
    return [frame for frame in frames if frame is not None]
