"""Rounds of a loop as steps, where the program gives no other sign of one.

An evaluation may call a function of the model instead of the model, a simulation calls none at all. But the loop that
goes on is on the stack, and Python tells when it comes to its first line again. While that is watched each call of a
Python function takes a tenth of a microsecond longer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

from profkit.collect.program.clocks import time
from profkit.collect.program.frames import line_of, walk_up
from profkit.collect.program.guard import uncompiled
from profkit.source.code import source_file
from profkit.source.surroundings import loops_around

_LEAST_ROUNDS = 3
"""The first is not whole. Two that follow are sign enough of a loop that goes on."""
_STEP_NS = 100_000_000
"""So long is a step at least: of rounds that are shorter some make a step."""
_MOST_TOGETHER = 1000
_SLOW_NS = 1_000_000_000
"""A loop whose rounds take longer is not waited for if one in it goes round."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop whose first ``line`` is in the function ``code``; ``together`` rounds are a step."""

    code: CodeType
    line: int
    together: int = 1


class LoopRounds:
    """Counts the rounds of the loops around the lines on the stack, from `install` on, up to `remove`. Once `choose`
    has found one, ``on_step`` is called when as many of its rounds are over as make a step, in a callback of Python's
    tracing."""

    def __init__(
        self, outermost: CodeType, without: Collection[int], is_user: Mapping[str, bool], on_step: Callable[[], None]
    ) -> None:
        """Only loops in the function ``outermost``, if they hold no line of it that is ``without`` them, and in the
        user's functions below it count."""
        self._without = without
        self._outermost, self._is_user, self._on_step = outermost, is_user, on_step
        self._loops: list[Loop] = []
        self._rounds: dict[int, dict[int, int]] = {}  # by the code's identity: to hash it takes longer than a call
        self._begun_ns = self._since = 0
        self._chosen: Loop | None = None

    def install(self, frame: FrameType | None) -> bool:
        """Begin with the frame and its callers. Returns False if another tracer is set, as a debugger's, or if the
        outermost function is not running the first time."""
        frames = self._frames(frame)
        if sys.gettrace() is not None or not (frames or self._begun_ns):
            return False
        if not self._begun_ns:
            self._loops = [loop for caller in frames for loop in self._loops_in(caller)]
            self._rounds = {id(loop.code): {} for loop in self._loops}
            self._begun_ns = time.perf_counter_ns()
        for caller in frames:
            if caller.f_trace is None and id(caller.f_code) in self._rounds:
                caller.f_trace = self._on_event
        sys.settrace(self._on_call)
        return True

    def remove(self, frame: FrameType | None) -> None:
        """Leave the program as it was."""
        if sys.gettrace() == self._on_call:
            sys.settrace(None)
        for caller in self._frames(frame):
            if caller.f_trace == self._on_event:
                caller.f_trace = None

    def choose(self) -> Loop | None:
        """The outermost loop with whole rounds so far, None if there is none. One around it whose first rounds are not
        over gets a second to end some. From here on only the rounds of the chosen loop count."""
        took_ns = time.perf_counter_ns() - self._begun_ns
        seen = [(loop, self._rounds[id(loop.code)].get(loop.line, 0)) for loop in self._loops]
        turned = [at for at, (_, rounds) in enumerate(seen) if rounds >= _LEAST_ROUNDS]
        if turned and (turned[0] == 0 or took_ns > _SLOW_NS):
            loop, rounds = seen[turned[0]]
            together = min(max(1, round(_STEP_NS * rounds / took_ns)), _MOST_TOGETHER)
            self._chosen = replace(loop, together=together)
        return self._chosen

    @property
    def is_hopeless(self) -> bool:
        """Whether there is no loop, or none has gone round for so long that none will soon."""
        return not self._loops or time.perf_counter_ns() - self._begun_ns > 2 * _SLOW_NS

    def _frames(self, frame: FrameType | None) -> list[FrameType]:
        """Those of the user up to the outermost function, the caller first."""
        found = []
        for caller in walk_up(frame):
            if self._is_user[caller.f_code.co_filename]:
                found.append(caller)
            if caller.f_code is self._outermost:
                return found[::-1]
        return []

    def _loops_in(self, frame: FrameType) -> Iterator[Loop]:
        """The loops around the line of the frame, the outermost first."""
        code = frame.f_code
        without = self._without if code is self._outermost else ()
        for first, last in loops_around(source_file(code), line_of(frame)):
            if not any(first <= line <= last for line in without):
                yield Loop(code, first)

    @uncompiled
    def _on_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._on_event if id(frame.f_code) in self._rounds else None

    @uncompiled
    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            line, rounds = frame.f_lineno, self._rounds[id(frame.f_code)]
            if (chosen := self._chosen) is None:
                rounds[line] = rounds.get(line, 0) + 1
            elif line == chosen.line and frame.f_code is chosen.code:
                self.reach()
                return None  # what this has set in the frame stays
        return self._on_event

    def reach(self) -> None:
        """A round of the chosen loop begins."""
        self._since += 1
        if self._chosen is not None and self._since >= self._chosen.together:
            self._since = 0
            self._on_step()
