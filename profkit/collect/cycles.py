"""What the steps after the recorded ones say of these: whether they are what the program is about.

A game is played and then learnt from in many steps of the optimizer; at the end of each epoch the model is evaluated
and saved. What comes once in so many steps is seldom among the few that are recorded. Other programs begin with short
steps of another kind. So the steps after the recorded ones are timed, for some seconds. If some of them take much
longer, at equal distances, and this makes up a good part of the time, whole cycles are recorded anew, each as one step;
if most of them do, the steps as they are now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from profkit.collect.plan import Plan
from profkit.collect.schedule import Phase, Schedule

MEASURED = 3
"""Cycles that are measured, after the one that is located: growth is told from four."""
_PATIENCE_NS = 20 * 10**9
_MOST_STEPS = 5000
_LEAST_STEP_NS = 300_000
"""To be told of the end of a step takes some 3 us: of shorter ones it would be more than a hundredth."""
_LONG = 3.0
"""Times the median: what a step takes that holds something else besides. Steps of the like vary by less."""
_STANDS_OUT = 10.0
"""Times the median: longer than the machine's hiccups make a step, of a millisecond or more."""
_ALIKE, _MUCH_ALIKE = 1 / 2, 2 / 3
"""What comes in a cycle takes about as long each time: the shorter of two, of the longer."""
_OTHERS = 2.0
"""Times the longest measured step: the profiler only made that longer, so steps that take so long do something else."""
_WORTH = 0.2
"""Share of the time that is not seen otherwise. Less changes little in what the others say."""
_UNEVEN = 0.05
"""Of the distance from one to the next: an epoch's last batch may fail."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """``every`` so many steps; ``step_ns`` and ``step_faults`` are of those that passed unprofiled, so many at a time.
    1: the steps are no longer what they were."""

    every: int
    step_ns: tuple[int, ...]
    step_faults: tuple[int, ...]

    @property
    def note(self) -> str:
        number = self.every
        if number == 1:
            return "the steps after those that were recorded first take much longer: these were recorded anew"
        return f"one in {number} steps of the optimizer takes much longer: a step is {number} of them, recorded anew"

    def plan(self, first: Plan) -> Plan:
        """What to record after the recording that the ``first`` plan was for."""
        plan = first.for_cycles(self.every, first.active if self.every == 1 else MEASURED)
        return replace(plan, known_step_ns=self.step_ns, known_step_faults=self.step_faults)


class CycleWatch:
    """``found`` is the cycle of the steps, once it is known. ``events`` are those of one recorded step. Nothing is
    timed for longer where another recording ``is_awaited``. No more than ``most_events`` are recorded."""

    def __init__(
        self, plan: Plan, schedule: Schedule, events: Callable[[], int], most_events: Callable[[], int]
    ) -> None:
        self.found: Cycle | None = None
        self.is_awaited: Callable[[], bool] = lambda: False
        self._plan, self._schedule, self._events = plan, schedule, events
        self._most_events = most_events
        self._usual_ns, self._total_ns = 0.0, 0

    def look(self, signal: str | None) -> Phase:
        """The phase of the next step, after one that passed behind the recorded ones."""
        schedule = self._schedule
        if not self._plan.finds_cycles or signal != "optimizer" or not schedule.timed:
            return schedule.phase
        took_ns = schedule.reference_step_ns[-1]
        self._total_ns += took_ns
        is_first_time = schedule.phase is Phase.DONE and not self._usual_ns
        if is_first_time:
            self._usual_ns = median(schedule.after_ns)
        if took_ns > _LONG * (self._usual_ns or median(schedule.after_ns)):
            self.found = self._find_cycle()
        elif is_first_time and self._are_others():
            self.found = Cycle(1, tuple(schedule.after_ns), tuple(schedule.after_faults))
        if self.found is not None:
            return schedule.end()
        return schedule.go_on_timing() if schedule.phase is Phase.DONE and self._may_go_on() else schedule.phase

    def pass_by(self, now_ns: int, count_faults: Callable[[], int]) -> bool:
        """All that is to be done at the end of a step that is like most, once these are known; else nothing, and
        False."""
        if not self._usual_ns or not self._may_go_on():
            return False
        took_ns = self._schedule.pass_behind(now_ns, count_faults, _LONG * self._usual_ns)
        self._total_ns += took_ns
        return took_ns > 0

    def _find_cycle(self) -> Cycle | None:
        after_ns = self._schedule.after_ns
        every = find_period(after_ns, longer_than=self._plan.active)
        if every is None or not self._fits(sum(after_ns[-every:]), every):
            return None
        return _cycle_of(every, after_ns, self._schedule.after_faults)

    def _are_others(self) -> bool:
        """Whether the steps became others since they were recorded; once in a program."""
        longest_ns = max(self._schedule.measured_step_ns, default=0)
        return not self._plan.is_second and self._usual_ns > _OTHERS * longest_ns > 0

    def _fits(self, cycle_ns: int, every: int) -> bool:
        cycles = MEASURED + 1
        return cycle_ns * cycles <= self._plan.limit_s * 1e9 and self._events() * every * cycles <= self._most_events()

    def _may_go_on(self) -> bool:
        is_cheap = self._usual_ns >= _LEAST_STEP_NS and not self.is_awaited()
        return is_cheap and self._schedule.timed < _MOST_STEPS and self._total_ns < _PATIENCE_NS


def find_period(took_ns: Sequence[int], longer_than: int) -> int | None:
    """After how many steps a long one comes again, where the last is one; None where there is no such rule to it, or
    the long ones are too little of all to matter.

    Three at equal distances are no chance; two are none where they stand out and resemble each other.
    """
    usual = median(took_ns)
    excess = [took - usual for took in took_ns]
    last = excess[-1]
    alike = _ALIKE if last < _STANDS_OUT * usual else _MUCH_ALIKE
    long = [i for i, more in enumerate(excess) if alike * last <= more <= last / alike]
    gaps = [later - earlier for earlier, later in pairwise(long)]
    if last < (_LONG - 1) * usual or len(gaps) < (2 if alike == _ALIKE else 1):
        return None
    every = gaps[-1]
    is_even = all(abs(gap - every) <= _UNEVEN * every for gap in gaps)
    share = sum(excess[i] for i in long[1:]) / sum(took_ns[long[0] + 1 :])
    return every if is_even and every > longer_than and share >= _WORTH else None


def _cycle_of(every: int, took_ns: Sequence[int], faults: Sequence[int]) -> Cycle:
    """The whole cycles up to the last step, each with a long one at its end."""
    ends = range(len(took_ns), every - 1, -every)
    return Cycle(every, *(tuple(sum(of[end - every : end]) for end in ends)[::-1] for of in (took_ns, faults)))
