"""Finds the work that passes for long between the steps of a training, or after the last of them.

An evaluation, an attack on the model or a search may take half of a run, and no recorded step holds any of it. The
looks at the main thread's stack tell when it goes on, as no step has ended for long. Then it is recorded too, once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
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
_MOST_TRIES = 3
"""For each the program waits a moment."""
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
    """`look` is told what each look at the main thread shows, on the looking thread. The rest is called on the main
    thread, between two bytecodes: ``observe`` with the function in which the work lies and its
    lines that belong to steps, then ``begin`` with its line,
    until it returns True. If a step ends before that, ``give_up`` is called, and all begins anew."""

    def __init__(
        self,
        guard: Guard,
        observe: Callable[[CodeType, Collection[int]], bool],
        begin: Callable[[CallSite], bool],
        give_up: Callable[[], None],
    ) -> None:
        self._observe, self._begin, self._give_up = observe, begin, give_up
        self._call = MainThreadCall(lambda: guard(self._act))
        self._lines_of_steps: set[Line] = set()
        self._lines_since: set[Line] = set()
        self._begun_ns = self._ended_ns = self._counted_ns = self._outside_ns = self._observed_ns = 0
        self._tries = 0
        self._took_ns: dict[Function, int] = {}
        self._found: tuple[Function, CallSite] | None = None
        self._is_outside = self._is_observing = self._was_begun = False

    @property
    def time_ns(self) -> int:
        """How long the work that was recorded went on in all, in nanoseconds."""
        return self._took_ns[self._found[0]] if self._was_begun and self._found else 0

    def try_again(self) -> None:
        """Nothing was recorded: begin anew, but not for ever."""
        self._tries += 1
        self._was_begun = self._tries >= _MOST_TRIES

    def look(self, ended_ns: int, usual_ns: int, activity: StackActivity, lines: Sequence[Line]) -> None:
        """The last step ended at ``ended_ns`` of the performance counter, and one takes ``usual_ns``. The program's
        ``lines`` are on the stack, the caller first."""
        now_ns = time.perf_counter_ns()
        self._begun_ns = self._begun_ns or ended_ns
        self._note_end(ended_ns)
        self._is_outside = now_ns - ended_ns > max(_LEAST_NS, _TIMES * usual_ns)
        if not self._is_outside:
            self._lines_since.update(lines)
            if self._is_observing:
                self._call.request()
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
        if self._is_observing and now_ns - self._observed_ns > _SOON_NS:
            self._call.request()
        elif not (self._is_observing or self._was_begun) and self._is_due(now_ns, function):
            if self._found is None or self._found[0] is not function:
                self._found = function, _site_of(function, line)
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
        function, site = self._found
        if self._was_begun:
            return
        if not self._is_observing:
            self._was_begun = True  # in case it fails, of which there is no second time
            of_steps = {line for of, line in list(self._lines_of_steps) if of is function}
            self._is_observing = self._observe(function.code, of_steps)
            self._was_begun, self._observed_ns = False, time.perf_counter_ns()
        elif not self._is_outside:
            self._is_observing = False
            self._give_up()
        else:
            self._was_begun, self._is_observing = True, False
            if not self._begin(site):
                self._was_begun, self._is_observing = False, True


def _site_of(function: Function, line: int) -> CallSite:
    file = source_file(function.code)
    return CallSite(file, line, function_name(function.code), source_line(file, line))
