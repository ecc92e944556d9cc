"""Finds the work that passes for long between the steps of a training, or after the last of them.

An evaluation, an attack on the model or a search may take half of a run, and no recorded step holds any of it. The
looks at the main thread's stack tell when it goes on, as no step has ended for long. Then it is recorded too, once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType

from profkit.collect.boundaries.next_boundary import calls_hooks
from profkit.collect.program.clocks import time
from profkit.collect.program.engine import in_backward_pass
from profkit.collect.program.frames import is_at_work
from profkit.collect.program.guard import Guard
from profkit.collect.program.interrupts import MainThreadCall
from profkit.collect.sessions.session import is_capturing
from profkit.collect.whole_run.looks import Function, Line
from profkit.run.directory import CallSite
from profkit.run.whole_run import StackActivity
from profkit.source.code import function_name, source_file, source_line

_LEAST_NS, _TIMES = 500_000_000, 8
"""A step lasts no longer, or no more often than usual: so much later the program is at something else. Recording a part
of it takes as long."""
_SOON_NS = 300_000_000
"""After so much more time a call of the model should have come, or some rounds of a short loop."""
_SHARE = 0.1
"""Of the time since the first step: less is not worth another recording."""
_MOST_LINES = 4096
"""As many as the account of the run keeps stacks."""
_COMPUTES: frozenset[StackActivity] = frozenset(
    (
        StackActivity.OTHER,
        StackActivity.EVALUATING,
        StackActivity.FORWARD,
        StackActivity.BACKWARD,
        StackActivity.UPDATE,
    )
)
"""The rest, such as saving and waiting for data, has rules of its own, which need no recording."""


class InterludeWatch:
    """`look` is told what each look at the main thread shows, on the looking thread. ``begin`` is called on the main
    thread, between two bytecodes, with the function in which the work lies and its line, until it returns True. If no
    call of the model has ended a step soon after, ``go_on`` is called in the same way, until it returns True."""

    def __init__(self, guard: Guard, begin: Callable[[CodeType, CallSite], bool], go_on: Callable[[], bool]) -> None:
        self._begin, self._go_on, self._call = begin, go_on, MainThreadCall(lambda: guard(self._act))
        self._asked_ns, self._goes_on = 0, False
        self._lines_of_steps: set[Line] = set()
        self._lines_since: set[Line] = set()
        self._ended_ns = 0
        self._begun_ns = self._counted_ns = self._outside_ns = 0
        self._took_ns: dict[Function, int] = {}
        self._found: tuple[Function, CallSite] | None = None
        self._was_begun = False

    @property
    def time_ns(self) -> int:
        """How long the work that was recorded went on in all, in nanoseconds."""
        return self._took_ns[self._found[0]] if self._was_begun and self._found else 0

    def look(self, ended_ns: int, usual_ns: int, activity: StackActivity, lines: Sequence[Line]) -> None:
        """The last step ended at ``ended_ns`` of the performance counter, and one takes ``usual_ns``. The program's
        ``lines`` are on the stack, the caller first."""
        now_ns = time.perf_counter_ns()
        self._begun_ns = self._begun_ns or ended_ns
        self._note_end(ended_ns)
        if now_ns - ended_ns <= max(_LEAST_NS, _TIMES * usual_ns):
            self._lines_since.update(lines)
            return
        self._lines_since.clear()
        passed_ns, self._counted_ns = now_ns - max(self._counted_ns, ended_ns), now_ns
        root = next((line for line in lines if line not in self._lines_of_steps), None)
        if root is None or activity not in _COMPUTES:
            return
        function, line = root
        if function not in self._took_ns and len(self._took_ns) >= _MOST_LINES:
            return
        self._outside_ns += passed_ns
        self._took_ns[function] = self._took_ns.get(function, 0) + passed_ns
        if self._was_begun:
            if not self._goes_on and now_ns - self._asked_ns > _SOON_NS:
                self._call.request()
            return
        if not self._is_due(now_ns, function):
            return
        if self._found is None or self._found[0] is not function:
            self._found = function, _site_of(function, line)
        self._asked_ns = now_ns
        self._call.request()

    def _note_end(self, ended_ns: int) -> None:
        """If another step has ended, the lines since the one before are lines of steps: none of them was outside."""
        if ended_ns != self._ended_ns:
            if len(self._lines_of_steps) < _MOST_LINES:
                self._lines_of_steps |= self._lines_since
            self._lines_since.clear()
            self._ended_ns = ended_ns

    def _is_due(self, now_ns: int, function: Function) -> bool:
        least_ns = _SHARE * (now_ns - self._begun_ns)
        return self._outside_ns >= least_ns and self._took_ns[function] >= self._outside_ns / 2

    def _act(self) -> None:
        """Begin, unless something is under way that a recording would break; the next look asks again."""
        frame = sys._getframe()
        if self._found is None or in_backward_pass() or is_capturing() or is_at_work(frame) or calls_hooks(frame):
            return  # in a loop over hooks none may be added
        if self._was_begun:
            self._goes_on = self._go_on()
        else:
            self._was_begun = True  # if it fails, too
            self._was_begun = self._begin(self._found[0].code, self._found[1])


def _site_of(function: Function, line: int) -> CallSite:
    file = source_file(function.code)
    return CallSite(file, line, function_name(function.code), source_line(file, line))
