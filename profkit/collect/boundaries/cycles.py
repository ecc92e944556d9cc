"""Whether the recorded steps represent the program, judged by the steps after them.

Work that comes once in several optimizer steps, such as a game, a rollout, or an evaluation, is seldom among the few
recorded steps, or makes one of them unlike the others. Other programs begin with shorter steps: a game lasts longer as
its player improves. So profkit times the steps after the recorded ones for some seconds, and records again

- whole cycles, each as one step, if some of the steps take longer, at equal distances, and make up a good part of the
  time;
- so many steps at once that each time some long ones are among them, if these come at no equal distances but take most
  of the time;
- the long step alone, if the cycle has more events than may be recorded and the long step takes most of the time;
- the steps as they are now, if most of them take longer, and once more if they grow again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise
from math import inf
from statistics import median
from typing import Protocol

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.machine.page_faults import count_crowded_ns, count_crowded_ns_of_all
from profkit.collect.program.clocks import time
from profkit.collect.sessions.allowance import MANY_EVENTS
from profkit.core.units import format_share
from profkit.run.plan import Plan

_SAMPLED_NS, _MOST_AFTER = 5 * 10**9, 300
"""How long cycles are timed behind the recorded ones, and how many at most: samples of the program's stacks are taken
in them. Three cycles of a few milliseconds gave none, and of a rollout's Python nothing was known but line marks."""
MEASURED = 3
"""Cycles to measure after the located one: growth shows in four."""
_PATIENCE_NS = 40 * 10**9
"""Long enough for the longest cycles that can be recorded: four must fit into 30 s, and four must pass after the end of
the cycle in which timing began."""
_MOST_STEPS = 5000
_LEAST_STEP_NS = 300_000
"""On average. Noticing the end of a step takes about 3 µs, more than a hundredth of a shorter step. Out of the caches,
as the code mostly is, it takes 20 to 30."""
_FEW_STEPS = 2000
"""So many are timed however short they are: all together that takes 6 ms, and an epoch has hundreds of steps."""
_LONG = 1.5
"""A step that takes this many times the usual one may hold other work as well. Equal steps vary by less on a machine
that does nothing else; on any other, the distances tell noise from a cycle."""
_USUAL = 4
"""A step is usual that is longer than one in so many. If every second step is long, the median lies between both."""
_ALIKE = 1 / 2
"""The least ratio of two long steps' times: the work of a cycle takes about as long each time."""
_LONG_STEPS = {2: 8, 3: 6, 4: 5}
_FEWEST_LONG_STEPS = 4
"""How many long steps at equal distances make a cycle, by that distance. If a share q of the steps is long by chance, a
distance is g with probability q(1-q)^(g-1). Whatever q is, all of so many distances are equal in less than 1 of 1,000
programs; else garbage collections, a first evaluation or other programs on the machine would pass for a cycle."""
_HITS, _OTHER_LONG = 0.85, 0.15
"""The least share of a cycle's places where a step is long, and the most long steps elsewhere, in its long steps: an
accident among many cycles does not hide them. With 0.8 and 0.25, one noisy program in fifty had a cycle by chance."""
_IRREGULAR, _MOST_OF_TIME = 8, 0.5
"""How many long steps there must be, and the least share of the time beyond the usual that they must take, if their
distances differ."""
_CROWDED = 0.1
"""Of the time; if other threads of the process waited longer for a CPU, other programs may have made any step long."""
_VERY_LONG = 3.0
"""Such a step takes this many times the usual one."""
_FURTHEST = 3
"""A distance of more than so many mean ones counts as less: one long pause would make steps of a whole minute."""
_SEARCHING = 0.005
"""The most CPU time that all searches may take, of the time so far: each looks at all steps, in half a millisecond for
a thousand."""
_OTHERS = 2.0
"""Steps this many times as long as the longest measured one do something else: the profiler only lengthens steps."""
_TOGETHER = 30
"""The median of this many steps tells how long steps take now."""
_MOST_AGAIN = 2
"""How many times profkit may record again: the program waits each time while the recording is written."""
_SLOWED = 1.5
"""Recording makes steps this much longer, so their events come more slowly than they would otherwise."""
_WORTH = 0.2
"""The least share of the time that the long steps must explain: less would change little."""


class Extent(Enum):
    """What is recorded of a cycle: all of it, or only its long step. Steps that came ``IRREGULAR`` are recorded so many
    at once."""

    WHOLE = auto()
    IRREGULAR = auto()
    LONG_STEP = auto()


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle of ``every`` steps; 1 means that the steps have changed. ``step_ns`` and ``step_faults`` describe what is
    recorded of the cycles that passed unprofiled, which took ``share`` of the time. If the steps have changed,
    ``earlier_ns`` are all since the recording, the last of which ended at ``until_ns`` since the epoch."""

    every: int
    step_ns: tuple[int, ...]
    step_faults: tuple[int, ...]
    extent: Extent = Extent.WHOLE
    share: float = 1.0
    earlier_ns: tuple[int, ...] = ()
    until_ns: int = 0

    @property
    def note(self) -> str:
        number = self.every
        if number == 1:
            return "the steps after the recorded ones take much longer: profkit recorded those instead"
        if self.extent is Extent.LONG_STEP:
            share = f"{format_share(self.share)} of the time"
            return f"one in {number} optimizer steps takes much longer, {share}: profkit recorded that one alone"
        which = "some" if self.extent is Extent.IRREGULAR else f"one in {number}"
        takes = "steps take" if self.extent is Extent.IRREGULAR else "steps takes"
        return f"{which} optimizer {takes} much longer: profkit recorded again, {number} of them as a step"

    def plan(self, first: Plan) -> Plan:
        """What to record next, after the recording by the ``first`` plan."""
        if self.extent is Extent.LONG_STEP:
            plan = first.for_long_step(self.every, self.share)
        else:
            plan = first.for_cycles(self.every, first.active if self.every == 1 else MEASURED)
        if self.every > 1 and self.extent is not Extent.LONG_STEP:
            plan = replace(plan, after=max(1, min(_MOST_AFTER, _SAMPLED_NS // max(int(median(self.step_ns)), 1))))
        if self.earlier_ns and not first.earlier_step_ns:
            plan = replace(plan, earlier_step_ns=self.earlier_ns, earlier_until_ns=self.until_ns)
        return replace(plan, known_step_ns=self.step_ns, known_step_faults=self.step_faults)


class Sizes(Protocol):
    """How many events the located and the measured steps had."""

    located_events: int
    measured_events: int


class CycleWatch:
    """Times the steps after the recorded ones. ``plan`` is the plan of the recording so far, and ``sizes`` are its
    sizes. ``found`` is the cycle, once it is known and unless profkit has recorded again too often. ``events_left``
    says how many more events may be recorded. Timing ends once another recording ``is_awaited``."""

    def __init__(
        self,
        plan: Plan,
        schedule: Schedule,
        sizes: Sizes,
        events_left: Callable[[], int],
        is_awaited: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self.found: Cycle | None = None
        self._schedule, self._sizes, self._events_left, self._is_awaited = schedule, sizes, events_left, is_awaited
        self._usual_ns, self._total_ns, self._searched_ns = 0.0, 0, 0
        self._waits = _Waits()

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
        self._waits.note(schedule.timed - 1, took_ns)
        if schedule.phase is Phase.DONE and self._is_due(schedule.timed):
            self._usual_ns = usual_of(schedule.after_ns[-_TOGETHER:])
            self.found = self._find_others()
        if self.found is None and self._may_search:
            begun_ns = time.thread_time_ns()
            after_ns = self._waits.left_out_of(schedule.after_ns)
            if after_ns[-1] > _LONG * (self._usual_ns or usual_of(after_ns)):
                self.found = self._find_cycle(after_ns)
            self._searched_ns += time.thread_time_ns() - begun_ns
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
        if not took_ns and not self._may_search:
            took_ns = self._schedule.pass_behind(now_ns, count_faults, inf)
            self._waits.note(self._schedule.timed - 1, took_ns)
        self._total_ns += took_ns
        return took_ns > 0

    def _find_cycle(self, after_ns: Sequence[int]) -> Cycle | None:
        faults = self._schedule.after_faults
        if (every := find_period(after_ns)) is not None:
            if self._may_record(sum(after_ns[-every:]), MEASURED + 1):
                return _cycle_of(every, after_ns, faults)
            long = _cycle_of(every, after_ns, faults, Extent.LONG_STEP)
            return long if long.share >= _MOST_OF_TIME and self._may_record(after_ns[-1], 2, is_all=False) else None
        several = find_distance(after_ns)
        if several is None or self._waited_for_others:
            return None
        are_few = self._may_record(sum(after_ns) * several // len(after_ns), MEASURED + 1)
        return _cycle_of(several, after_ns, faults, Extent.IRREGULAR) if are_few else None

    @property
    def _waited_for_others(self) -> bool:
        return self._waits.of_others_ns > _CROWDED * self._total_ns

    @property
    def _may_search(self) -> bool:
        return self._searched_ns <= _SEARCHING * self._total_ns

    def _is_due(self, timed: int) -> bool:
        """Whether it is time to compare the steps with the recorded ones again."""
        return (timed - self.plan.after) % _TOGETHER == 0

    def _find_others(self) -> Cycle | None:
        """The steps as they are now, if they differ from the recorded ones, and not because others have the CPUs."""
        longest_ns = max(self._schedule.measured_step_ns, default=0)
        ran_ns = self._waits.left_out_of(self._schedule.after_ns)[-_TOGETHER:]
        if not median(ran_ns) > _OTHERS * longest_ns > 0 or self._waited_for_others:
            return None
        took_ns, faults = self._schedule.after_ns, self._schedule.after_faults
        until_ns = time.time_ns() - (time.perf_counter_ns() - self._schedule.timed_until_ns)
        known = tuple(took_ns[-_TOGETHER:]), tuple(faults[-_TOGETHER:])
        return Cycle(1, *known, earlier_ns=tuple(took_ns), until_ns=until_ns)

    def _may_record(self, part_ns: int, times: int, is_all: bool = True) -> bool:
        """Whether a part of the program that takes so long may be recorded so many times in the time allowed, and at
        least once with all its events, or else a good part of them."""
        wanted = self._events_in(part_ns) if is_all else MANY_EVENTS
        return part_ns * times <= self.plan.limit_s * 1e9 and wanted <= self._events_left()

    def _events_in(self, part_ns: int) -> float:
        """How many events such a part has, as far as the recorded steps tell. The located step says how many a usual
        one has, unless it was a long one; the measured ones say how fast they come."""
        measured_ns = sum(self._schedule.measured_step_ns)
        located = self._sizes.located_events * part_ns / (self._usual_ns or usual_of(self._schedule.after_ns))
        measured = _SLOWED * self._sizes.measured_events * part_ns / measured_ns if measured_ns else 0.0
        return min(located or inf, measured or inf)

    def _may_go_on(self) -> bool:
        timed = self._schedule.timed
        is_cheap = timed < _FEW_STEPS or self._total_ns >= _LEAST_STEP_NS * timed
        return is_cheap and not self._is_awaited() and timed < _MOST_STEPS and self._total_ns < _PATIENCE_NS


class _Waits:
    """How long the thread waited for a CPU in long steps: other programs on the machine made those longer."""

    def __init__(self) -> None:
        self._in_step: dict[int, int] = {}
        self._all_ns, self._own_ns = count_crowded_ns_of_all(), count_crowded_ns() or 0
        self._noted_ns = self._own_ns

    @property
    def of_others_ns(self) -> int:
        """How long the other threads of the process waited so far."""
        return count_crowded_ns_of_all() - self._all_ns - (count_crowded_ns() or 0) + self._own_ns

    def note(self, step: int, took_ns: int) -> None:
        """The step with this number ended; those since the last that was noted were short, and hardly waited."""
        now_ns = count_crowded_ns() or 0
        waited_ns, self._noted_ns = now_ns - self._noted_ns, now_ns
        if waited_ns > 0:
            self._in_step[step] = min(waited_ns, took_ns)

    def left_out_of(self, took_ns: list[int]) -> list[int]:
        """The steps' times without these waits."""
        for step, waited_ns in self._in_step.items():
            took_ns[step] -= waited_ns
        return took_ns


def usual_of(took_ns: Sequence[int]) -> int:
    """A step that is longer than one in `_USUAL`, so that it is no long one even if every second is; at least 1."""
    return max(sorted(took_ns)[len(took_ns) // _USUAL], 1)


def find_period(took_ns: Sequence[int]) -> int | None:
    """The number of steps from one long step to the next, if the last step is long; None if long steps come irregularly
    or take too small a share of the time to matter."""
    usual = usual_of(took_ns)
    excess = [took - usual for took in took_ns]
    last = excess[-1]
    if last < (_LONG - 1) * usual:
        return None
    long = [i for i, more in enumerate(excess) if _ALIKE * last <= more <= last / _ALIKE]
    gaps = sorted(later - earlier for earlier, later in pairwise(long))
    every = gaps[len(gaps) // 2] if gaps else 1
    if every < 2:
        return None
    places = range(len(took_ns) - 1, -1, -every)
    hits = sorted(set(long).intersection(places))
    elsewhere = len(long) - len(hits)
    if len(places) < _LONG_STEPS.get(every, _FEWEST_LONG_STEPS):
        return None
    if len(hits) < _HITS * len(places) or elsewhere > _OTHER_LONG * len(hits):
        return None
    share = sum(excess[i] for i in hits if i > places[-1]) / sum(took_ns[places[-1] + 1 :])
    return every if share >= _WORTH else None


def find_distance(took_ns: Sequence[int]) -> int | None:
    """The number of steps among which a long one is nearly always, if long steps come at unequal distances and take
    most of the time, and the last step is one; else None."""
    usual = usual_of(took_ns)
    long = [i for i, took in enumerate(took_ns) if took >= _VERY_LONG * usual]
    if len(long) < _IRREGULAR or long[-1] != len(took_ns) - 1:
        return None
    share = sum(took_ns[i] - usual for i in long) / sum(took_ns)
    gaps = [later - earlier for earlier, later in pairwise(long)]
    several = min(max(gaps), round(_FURTHEST * sum(gaps) / len(gaps)))
    return several if share >= _MOST_OF_TIME and several > 1 else None


def _cycle_of(every: int, took_ns: Sequence[int], faults: Sequence[int], extent: Extent = Extent.WHOLE) -> Cycle:
    """The whole cycles up to the last step, or the last step of each. Each ends with a long step."""
    ends = range(len(took_ns), every - 1, -every)
    recorded = 1 if extent is Extent.LONG_STEP else every
    step_ns, step_faults = (tuple(sum(of[end - recorded : end]) for end in ends)[::-1] for of in (took_ns, faults))
    share = sum(step_ns) / max(sum(took_ns[ends[-1] - every :]), 1)
    return Cycle(every, step_ns, step_faults, extent, share)
