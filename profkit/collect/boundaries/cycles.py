"""What the steps after the recorded ones say of these: whether they are what the program is about.

A game is played and then learnt from in many steps of the optimizer; at the end of each epoch the model is evaluated
and saved. What comes once in so many steps is seldom among the few that are recorded. Other programs begin with short
steps of another kind, or with shorter ones: a game lasts the longer the better it is played. So the steps after the
recorded ones are timed, for some seconds. If some of them take much longer, at equal distances, and this makes up a
good part of the time, whole cycles are recorded anew, each as one step; if most of them do, the steps as they are now,
and once more where these grow again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.plan import Plan

MEASURED = 3
"""Cycles that are measured, after the one that is located: growth is told from four."""
_PATIENCE_NS = 40 * 10**9
"""As long as it takes to see the longest cycles that can be recorded: four of them must fit into 30 s, and so many are
to be seen, after the end of one that began before."""
_MOST_STEPS = 5000
_LEAST_STEP_NS = 300_000
"""To be told of the end of a step takes some 3 us: of shorter ones it would be more than a hundredth."""
_LONG = 3.0
"""Times the median: what a step takes that holds something else besides. Steps of the like vary by less."""
_ALIKE = 1 / 2
"""What comes in a cycle takes about as long each time: the shorter of two, of the longer."""
_EQUAL = 3
"""Distances that must be one number, and there must be no others. Where long steps come by chance, as a share q of all,
the next distance is the last one with probability q / (2 - q), and three are one number, of five steps or more, in less
than 1 of 1,000 programs whatever q is; two are in 1 of 20, and what collects garbage, evaluates the model for the first
time or runs beside the program on the machine would pass for a cycle."""
_OTHERS = 2.0
"""Times the longest measured step: the profiler only made that longer, so steps that take so long do something else."""
_TOGETHER = 30
"""Steps whose median tells what steps take now."""
_MOST_ANEW = 2
"""Recordings that may take the place of the one before, in one run of a program: each stops it to be written."""
_WORTH = 0.2
"""Share of the time that is not seen otherwise. Less changes little in what the others say."""


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
    """``plan`` is what was recorded so far, ``found`` is the cycle of the steps, once it is known, unless steps were
    recorded anew so often that they stand whatever comes. ``events`` are those of one recorded step. Nothing is timed
    for longer where another recording ``is_awaited``. No more than ``most_events`` are recorded."""

    def __init__(
        self,
        plan: Plan,
        schedule: Schedule,
        events: Callable[[], int],
        most_events: Callable[[], int],
        is_awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        self.plan = plan
        self.found: Cycle | None = None
        self._schedule, self._events, self._is_awaited = schedule, events, is_awaited
        self._most_events = most_events
        self._usual_ns, self._total_ns = 0.0, 0

    def look(self, signal: str | None) -> Phase:
        """The phase of the next step, after one that passed behind the recorded ones."""
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
        if self.plan.anew >= _MOST_ANEW:
            self.found = None
        if self.found is not None:
            return schedule.end()
        return schedule.go_on_timing() if schedule.phase is Phase.DONE and self._may_go_on() else schedule.phase

    def pass_by(self, now_ns: int, count_faults: Callable[[], int]) -> bool:
        """All that is to be done at the end of a step that is like most, once these are known; else nothing, and
        False."""
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
        """Whether what steps take is told anew after so many that were timed: now and then."""
        return (timed - self.plan.after) % _TOGETHER == 0

    def _find_others(self) -> Cycle | None:
        """The steps as they are now, where they are not what they were when they were recorded."""
        longest_ns = max(self._schedule.measured_step_ns, default=0)
        if not self._usual_ns > _OTHERS * longest_ns > 0:
            return None
        now = (tuple(of[-_TOGETHER:]) for of in (self._schedule.after_ns, self._schedule.after_faults))
        return Cycle(1, *now)

    def _fits(self, cycle_ns: int, every: int) -> bool:
        cycles = MEASURED + 1
        return cycle_ns * cycles <= self.plan.limit_s * 1e9 and self._events() * every * cycles <= self._most_events()

    def _may_go_on(self) -> bool:
        is_cheap = self._usual_ns >= _LEAST_STEP_NS and not self._is_awaited()
        return is_cheap and self._schedule.timed < _MOST_STEPS and self._total_ns < _PATIENCE_NS


def find_period(took_ns: Sequence[int], longer_than: int) -> int | None:
    """After how many steps a long one comes again, where the last is one; None where there is no such rule to it, or
    the long ones are too little of all to matter."""
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
    """The whole cycles up to the last step, each with a long one at its end."""
    ends = range(len(took_ns), every - 1, -every)
    return Cycle(every, *(tuple(sum(of[end - every : end]) for end in ends)[::-1] for of in (took_ns, faults)))
