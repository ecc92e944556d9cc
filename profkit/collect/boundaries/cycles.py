"""Whether the recorded steps represent the program, judged by the steps after them.

Work that comes once in many optimizer steps, such as playing a game or an evaluation, is seldom among the few recorded
steps. Other programs begin with shorter steps: a game lasts longer as its player improves. So profkit times the steps
after the recorded ones for some seconds. If some of them take much longer, at equal distances, and make up a good part
of the time, profkit records whole cycles again, each as one step. If most of them take longer, it records the steps as
they are now, and once more if they grow again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.run.plan import Plan

MEASURED = 3
"""Cycles to measure after the located one: growth shows in four."""
_PATIENCE_NS = 40 * 10**9
"""Long enough for the longest cycles that can be recorded: four must fit into 30 s, and four must pass after the end of
the cycle in which timing began."""
_MOST_STEPS = 5000
_LEAST_STEP_NS = 300_000
"""Noticing the end of a step takes about 3 µs, more than a hundredth of a shorter step."""
_LONG = 3.0
"""A step that takes this many times the median holds other work as well; equal steps vary by less."""
_ALIKE = 1 / 2
"""The least ratio of two long steps' times: the work of a cycle takes about as long each time."""
_EQUAL = 3
"""How many distances between long steps there must be, all equal. If a share q of the steps is long by chance, a
distance equals the one before with probability q / (2 - q). Whatever q is, three distances of five steps or more are
equal in less than 1 of 1,000 programs, but two are in 1 of 20: then garbage collections, a first evaluation or other
programs on the machine would pass for a cycle."""
_OTHERS = 2.0
"""Steps this many times as long as the longest measured one do something else: the profiler only lengthens steps."""
_TOGETHER = 30
"""The median of this many steps tells how long steps take now."""
_MOST_AGAIN = 2
"""How many times profkit may record again: the program waits each time while the recording is written."""
_WORTH = 0.2
"""The least share of the time that the long steps must explain: less would change little."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle of ``every`` steps; 1 means that the steps have changed. ``step_ns`` and ``step_faults`` describe whole
    cycles that passed unprofiled."""

    every: int
    step_ns: tuple[int, ...]
    step_faults: tuple[int, ...]

    @property
    def note(self) -> str:
        number = self.every
        if number == 1:
            return "the steps after the recorded ones take much longer: profkit recorded those instead"
        return f"one in {number} optimizer steps takes much longer: profkit recorded again, {number} of them as a step"

    def plan(self, first: Plan) -> Plan:
        """What to record next, after the recording by the ``first`` plan."""
        plan = first.for_cycles(self.every, first.active if self.every == 1 else MEASURED)
        return replace(plan, known_step_ns=self.step_ns, known_step_faults=self.step_faults)


class CycleWatch:
    """Times the steps after the recorded ones. ``plan`` is the plan of the recording so far. ``found`` is the cycle,
    once it is known and unless profkit has recorded again too often. ``steps_left`` says how many more steps may be
    recorded. Timing ends once another recording ``is_awaited``."""

    def __init__(
        self,
        plan: Plan,
        schedule: Schedule,
        steps_left: Callable[[], int],
        is_awaited: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self.found: Cycle | None = None
        self._schedule, self._steps_left, self._is_awaited = schedule, steps_left, is_awaited
        self._usual_ns, self._total_ns = 0.0, 0

    @property
    def may_begin(self) -> bool:
        """Whether profkit may record once more."""
        return self.plan.anew < _MOST_AGAIN

    def look(self, signal: str | None) -> Phase:
        """The phase of the next step, after a step behind the recorded ones."""
        schedule = self._schedule
        if not self.plan.finds_cycles or signal != "optimizer" or not schedule.timed:
            return schedule.phase
        took_ns = schedule.reference_step_ns[-1]
        self._total_ns += took_ns
        if schedule.phase is Phase.DONE and self._is_due(schedule.timed):
            self._usual_ns = median(schedule.after_ns[-_TOGETHER:])
            self.found = self._find_others()
        if self.found is None and took_ns > _LONG * (self._usual_ns or median(schedule.after_ns)):
            self.found = self._find_cycle()
        if not self.may_begin:
            self.found = None
        if self.found is not None:
            return schedule.end()
        return schedule.go_on_timing() if schedule.phase is Phase.DONE and self._may_go_on() else schedule.phase

    def pass_by(self, now_ns: int, count_faults: Callable[[], int]) -> bool:
        """A shortcut past `look` for a step like most, once those are known; False if the step needs `look`."""
        if not self._usual_ns or not self._may_go_on() or self._is_due(self._schedule.timed + 1):
            return False
        took_ns = self._schedule.pass_behind(now_ns, count_faults, _LONG * self._usual_ns)
        self._total_ns += took_ns
        return took_ns > 0

    def _find_cycle(self) -> Cycle | None:
        after_ns = self._schedule.after_ns
        every = find_period(after_ns, longer_than=self.plan.active)
        if every is None or not self._fits(sum(after_ns[-every:]), every):
            return None
        return _cycle_of(every, after_ns, self._schedule.after_faults)

    def _is_due(self, timed: int) -> bool:
        """Whether it is time to compare the steps with the recorded ones again."""
        return (timed - self.plan.after) % _TOGETHER == 0

    def _find_others(self) -> Cycle | None:
        """The steps as they are now, if they differ from the recorded ones."""
        longest_ns = max(self._schedule.measured_step_ns, default=0)
        if not self._usual_ns > _OTHERS * longest_ns > 0:
            return None
        now = (tuple(of[-_TOGETHER:]) for of in (self._schedule.after_ns, self._schedule.after_faults))
        return Cycle(1, *now)

    def _fits(self, cycle_ns: int, every: int) -> bool:
        cycles = MEASURED + 1
        return cycle_ns * cycles <= self.plan.limit_s * 1e9 and every * cycles <= self._steps_left()

    def _may_go_on(self) -> bool:
        is_cheap = self._usual_ns >= _LEAST_STEP_NS and not self._is_awaited()
        return is_cheap and self._schedule.timed < _MOST_STEPS and self._total_ns < _PATIENCE_NS


def find_period(took_ns: Sequence[int], longer_than: int) -> int | None:
    """The number of steps from one long step to the next, if the last step is long; None if long steps come irregularly
    or take too small a share of the time to matter."""
    usual = median(took_ns)
    excess = [took - usual for took in took_ns]
    last = excess[-1]
    if last < (_LONG - 1) * usual:
        return None
    long = [i for i, more in enumerate(excess) if _ALIKE * last <= more <= last / _ALIKE]
    gaps = [later - earlier for earlier, later in pairwise(long)]
    if len(gaps) < _EQUAL or len(set(gaps)) > 1:
        return None
    share = sum(excess[i] for i in long[1:]) / sum(took_ns[long[0] + 1 :])
    return gaps[0] if gaps[0] > longer_than and share >= _WORTH else None


def _cycle_of(every: int, took_ns: Sequence[int], faults: Sequence[int]) -> Cycle:
    """The whole cycles up to the last step; each ends with a long step."""
    ends = range(len(took_ns), every - 1, -every)
    return Cycle(every, *(tuple(sum(of[end - every : end]) for end in ends)[::-1] for of in (took_ns, faults)))
