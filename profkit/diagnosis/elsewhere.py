"""How much of the program's time the judged steps do not stand for, and where that lies.

Figures are those of a median step. If others are much longer, most of the time may lie in what only these hold: a
rollout before a few updates, or what comes between two epochs. In a recording without other timed steps, whatever else
was recorded shows that; what is start-up is told apart. A program may have several loops with backward passes, a
training and an attack on its model: looks at the run tell which of them were recorded.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.steps.boundaries import ONE_UPDATE, STEP_MARKS, UNDIVIDED, whole_window
from profkit.derive.steps.on_device import MARKED
from profkit.derive.timeline.intervals import unite
from profkit.diagnosis.interlude import find_interlude
from profkit.findings.values import Elsewhere, Location, WholeRun
from profkit.patterns.loops.located import sites_of_located_step
from profkit.patterns.time.start_up import find_cold_start, preparing
from profkit.patterns.whole_run.phases import BETWEEN, OUTSIDE_STEPS, STEPS, places_of, whole_run
from profkit.patterns.whole_run.timed_lines import timed_lines
from profkit.run.directory import CallSite
from profkit.run.whole_run import Place, RunAccount, StackTime
from profkit.savings.plain_steps import plain_steps_ns, regular_interval
from profkit.savings.step_time import step_time
from profkit.trace.events import Float64s
from profkit.trace.statistics import median

_Loop = tuple[str, str, int]
"""A file, a function in it, and the first line of a loop, 0 for none."""
_LEAST_STEPS = 10
"""With fewer, the share is that of a handful."""
_MOST_ELSEWHERE = 0.5
"""Of the time. Where the judged steps stand for more than that, they come first."""
_MORE_WORK = 1.5
"""Times the device's work in a judged step. A first step that is longer for such a reason is no cold start."""
_LONG = 3.0
"""Times a judged step: a busy machine stretches single steps by less, unless another program takes the CPU."""
_ALIKE = 2.0
"""How many times the median of long steps another one may be: what comes once in a cycle takes about as long each
time, and other long steps are accidents."""
_LEAST_LONG = 4
"""So many long steps, at equal distances, are a cycle."""
_SEEN = 0.1
"""The least share of the whole run that must be seen at lines outside its steps, if long steps come at no equal
distances: else other programs on the machine may be why."""
_MUCH_OF_RUN = 0.3
"""In another loop: what the recorded steps could win is less than two thirds of the run then."""


def find_elsewhere(facts: Facts) -> Elsewhere | None:
    """None if the judged steps stand for most of the time, or if nobody can tell."""
    run = facts.run
    if not facts.has_trace or run.is_part or run.signals_per_step > 1 or run.one_in > 1:
        return None
    if (other := _in_another_loop(facts)) is not None:
        return other
    if not run.reference_step_ns:
        return _in_recording(facts)
    took_ns, time = plain_steps_ns(facts), step_time(facts)
    known_ns = time.held_up_ns or time.unrecorded_ns
    if len(took_ns) < _LEAST_STEPS:
        return None
    judged_ns = median(took_ns) if known_ns is None else known_ns
    share = 1 - len(took_ns) * float(judged_ns) / max(float(took_ns.sum()), 1.0)
    if share < _MOST_ELSEWHERE or _was_recorded_too(facts, share):
        return None
    every, (seen, what, at) = _distance(took_ns, judged_ns), _seen_outside(whole_run(facts))
    timed = timed_lines(facts)
    if lines := timed.explaining() if timed is not None else ():
        what = "" if lines[0].label in (BETWEEN, STEPS) else lines[0].label
        at = Location.of(lines[0].site).short
    return Elsewhere(share, every, what, at) if every or seen >= _SEEN else None


def _in_another_loop(facts: Facts) -> Elsewhere | None:
    """The loops with backward passes of which no line is in the recorded steps, if they take much of the run."""
    recorded = {(site.file, site.line) for site in sites_of_located_step(facts)}
    whole = whole_run(facts)
    if whole is None or not recorded:
        return None
    found = [(_training_place(facts.account, stack), stack.time_ns) for stack in facts.account.stacks]
    known = [(place, time_ns) for place, time_ns in found if place is not None]
    seen = {_loop_of(place) for place, _ in known if (place.site.file, place.site.line) in recorded}
    lines = Counter[CallSite]()
    for place, time_ns in known:
        lines[place.site] += time_ns * (_loop_of(place) not in seen)
    share = lines.total() / max(whole.programs_ns, 1)
    if not seen or share < _MUCH_OF_RUN or _was_recorded_too(facts, share):
        return None
    return Elsewhere(share, at=Location.of(lines.most_common(1)[0][0]).short, of_run=True)


def _was_recorded_too(facts: Facts, share: float) -> bool:
    """Whether most of what takes this share of the run was recorded between the steps."""
    interlude = find_interlude(facts)
    return interlude is not None and interlude[2] >= share / 2


def _training_place(account: RunAccount, stack: StackTime) -> Place | None:
    """The innermost line in a loop or function with a backward pass."""
    return next((place for place in reversed(places_of(account, stack)) if place.trains), None)


def _loop_of(place: Place) -> _Loop:
    return place.site.file, place.site.function, place.loop


def _in_recording(facts: Facts) -> Elsewhere | None:
    """What the recording holds beside as many steps of median length as were measured, and beside start-up. Where the
    profiler marks steps there is nothing else of the program."""
    steps = facts.steps
    if steps.source in (STEP_MARKS, MARKED, *UNDIVIDED, ONE_UPDATE):
        return None
    begun_ns, end_ns = (int(edge[0]) for edge in whole_window(facts.trace)[:2])
    once_ns = max(unite(preparing(facts), facts.starting.any).total_ns, _cold_ns(facts))
    left_ns = end_ns - begun_ns - once_ns - steps.measured_count * steps.usual_ns
    share = left_ns / max(end_ns - begun_ns, 1)
    return Elsewhere(share, of_recording=True) if share >= _MOST_ELSEWHERE else None


def _cold_ns(facts: Facts) -> int:
    """How much longer the first step takes, if the device has no more to do in it than in others."""
    cold, launches, steps = find_cold_start(facts), facts.launches, facts.steps
    if cold is None:
        return 0
    step = steps.index_of(launches.launched_ns)
    worked_ns = np.bincount(
        step[step >= 0], facts.trace.events.duration_ns[launches.work[step >= 0]], minlength=len(steps)
    )
    return cold.longer_ns if worked_ns[cold.step] <= _MORE_WORK * median(worked_ns[steps.measured]) else 0


def _distance(took_ns: Float64s, judged_ns: float) -> int:
    """How many steps lie between two long ones, if that is nearly always the same number; else 0."""
    long = np.flatnonzero(took_ns > _LONG * judged_ns)
    if len(long) < _LEAST_LONG:
        return 0
    usual_ns = median(took_ns[long])
    alike = long[took_ns[long] > usual_ns / _ALIKE]
    return regular_interval(alike) if len(alike) >= _LEAST_LONG else 0


def _seen_outside(whole: WholeRun | None) -> tuple[float, str, str]:
    """The share of the run outside its steps, and what most of that is, and where; empty if not known."""
    known = whole.phases if whole is not None else ()
    phases = [phase for phase in known if phase.label in OUTSIDE_STEPS and not phase.in_steps]
    if not phases:
        return 0.0, "", ""
    most = max(phases, key=lambda phase: phase.time_ns)
    at = most.lines[0].location.short if most.lines else ""
    return sum(phase.fraction for phase in phases), "" if most.label == BETWEEN else most.label, at
