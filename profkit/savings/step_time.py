"""How long a step takes without the recording, where its time then goes, and what bounds it.

A recording slows the host, but hardly the device. So what bounds the recorded steps need not bound the others. Both are
told by rows of one table (`profkit.patterns.time.shares`), recorded and without the recording: the device's rows keep
their length, and the others get the rest.

A recording makes no step shorter. Where the steps without it took longer all the same, something else held them up,
such as other programs, or they had more to do. Nothing was recorded of that, so savings refer to the recorded step. A
host that launches work for a device is timed by other means, and CUPTI slows it behind the recording: there the steps
without it stand for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.steps.boundaries import UNDIVIDED
from profkit.derive.steps.distortion import ATTACHED, SURE_WITH_FRAMES, SURE_WITHIN
from profkit.derive.timeline.intervals import union
from profkit.patterns.program import length_ns
from profkit.patterns.time.bounds import Bound, find_bound, is_busy, is_of_device, is_of_host
from profkit.patterns.time.shares import PROFILING, kept_shares, time_shares, unmarked_shares
from profkit.run.directory import unprofiled_steps
from profkit.savings.edits import Edit
from profkit.savings.replay import device_alone_ns, host_at_work_ns, replay
from profkit.trace.events import Category
from profkit.trace.statistics import are_of_two_sorts, pace

_SEEN = 0.05
"""Steps of one program differ by this much from run to run."""


class StepTime(Struct, frozen=True):
    """In nanoseconds: a step as recorded; a step without the recording, with whether that was ``measured`` or
    ``estimated`` (None if neither is possible); the time that the device needs if nothing holds it up, how long it is
    busy, and the host's own work without its waits for the device. ``bound_by`` is what the step waits for without the
    recording, ``recorded_bound_by`` as recorded. These five are None without a device. ``least_ns`` is the shortest
    that a step without the recording may be, given how uncertain that is, and ``most_ns`` the longest. ``rows`` are the
    time of the step without the recording by where it goes, ``recorded_rows`` that of the recorded one.
    ``held_up_ns`` is what the steps without the recording took if that is longer than the recorded ones, which then
    stand for both."""

    recorded_ns: int
    unrecorded_ns: int | None = None
    source: str | None = None
    device_ns: int | None = None
    host_ns: int | None = None
    bound_by: Bound | None = None
    least_ns: int | None = None
    busy_ns: int | None = None
    recorded_bound_by: Bound | None = None
    rows: tuple[tuple[str, float], ...] = ()
    recorded_rows: tuple[tuple[str, float], ...] = ()
    most_ns: int | None = None
    held_up_ns: int | None = None

    @property
    def ns(self) -> int:
        """The step time that savings refer to: without the recording if that is known."""
        return self.recorded_ns if self.unrecorded_ns is None else self.unrecorded_ns

    @property
    def range_ns(self) -> tuple[int | None, int | None]:
        """The shortest and the longest that the step without the recording may be, each None if it is unknown or so
        near that no reader notices."""
        step_ns, least_ns, most_ns = self.unrecorded_ns, self.least_ns, self.most_ns
        if step_ns is None:
            return None, None
        shorter = least_ns is not None and least_ns < (1 - _SEEN) * step_ns
        longer = most_ns is not None and most_ns > (1 + _SEEN) * step_ns
        return least_ns if shorter else None, most_ns if longer else None


@derived_once
def step_time(facts: Facts) -> StepTime:
    """The step time of a recording."""
    steps, run, recorded = facts.steps, facts.run, facts.once(time_shares)
    recorded_ns = steps.usual_ns
    is_whole = not run.is_part and steps.source not in UNDIVIDED  # else it may be any part of a step
    timed_ns = unprofiled_steps(run, None)[0] if is_whole else ()
    reference_ns = int(pace(timed_ns)) if timed_ns else None
    if not facts.device.present:
        return _without_device(facts, timed_ns)
    device_ns = min(_device_ns(facts), recorded_ns)
    busy_ns, works_ns = (_time_of(recorded, counts) for counts in (is_busy, is_of_device))
    own_ns = min(busy_ns, _own_work_ns(facts))
    works_ns -= busy_ns - own_ns
    unrecorded_ns, source, least_ns, most_ns = None, None, recorded_ns, None
    if any(run.reference_step_device_ns):
        unrecorded_ns, source = reference_ns, "measured"
    elif reference_ns is not None:
        # Without a wait at its end a step is timed by its launches: the device may need longer.
        unslowed_ns, least_ns = _unslowed_ns(facts, reference_ns, device_ns)
        unrecorded_ns, source = max(unslowed_ns, device_ns, own_ns), "measured"
        most_ns = max(unrecorded_ns, reference_ns)
    elif facts.overhead.total_ns:
        unrecorded_ns, source = min(max(_estimate(facts, device_ns), works_ns), recorded_ns), "estimated"
        frames = bool((facts.trace.events.category == Category.PYTHON).any())
        factor = SURE_WITH_FRAMES if frames else SURE_WITHIN
        least_ns, most_ns = int(unrecorded_ns / factor), min(recorded_ns, _longest_ns(facts, unrecorded_ns, factor))
    step_ns = recorded_ns if unrecorded_ns is None else unrecorded_ns
    rows = _spread(_without_profiler(recorded, unrecorded_ns), facts.once(kept_shares), step_ns)
    return StepTime(
        recorded_ns=recorded_ns,
        unrecorded_ns=unrecorded_ns,
        source=source,
        device_ns=device_ns,
        host_ns=steps.per_step_ns(host_at_work_ns(facts)),
        bound_by=find_bound(rows),
        least_ns=min(step_ns, max(device_ns, own_ns, least_ns)),
        busy_ns=_time_of(rows, is_busy),
        recorded_bound_by=find_bound(recorded),
        rows=rows,
        recorded_rows=recorded,
        most_ns=most_ns,
    )


def _without_device(facts: Facts, timed_ns: Sequence[int]) -> StepTime:
    recorded_ns, recorded = facts.steps.usual_ns, facts.once(time_shares)
    reference_ns, held_up_ns = _reference(timed_ns, recorded_ns)
    source = None if reference_ns is None else "measured"
    kept = facts.once(unmarked_shares) if facts.marks_by_line.total_ns else recorded
    rows = _spread(kept, kept, recorded_ns if reference_ns is None else reference_ns)
    return StepTime(recorded_ns, reference_ns, source, rows=rows, recorded_rows=recorded, held_up_ns=held_up_ns)


def _reference(timed_ns: Sequence[int], recorded_ns: int) -> tuple[int | None, int | None]:
    """The step that stands for those without the recording, None if none was timed; and how long these took if that is
    longer than the recorded ones. Steps of two sorts are told together: the recorded ones may be of the shorter."""
    if not timed_ns:
        return None, None
    paced_ns = int(pace(timed_ns))
    if paced_ns <= recorded_ns or are_of_two_sorts(timed_ns):
        return paced_ns, None
    return recorded_ns, paced_ns


def as_in_step_ns(facts: Facts, recorded_ns: float) -> float:
    """The same share of the step that savings refer to as this time is of a recorded one: what a sentence beside a
    price tells. It assumes that a recording slows all parts of a step alike. Beside a device it does not: its work
    keeps its length, and so do these times."""
    time = step_time(facts)
    if facts.device.present:
        return recorded_ns
    return recorded_ns * time.ns / max(time.recorded_ns, 1)


def undisturbed_in_step_ns(facts: Facts, total_ns: float) -> float:
    """The same of time in all measured steps together that is without what disturbed it already (`length_ns`)."""
    steps = facts.steps
    if facts.device.present:
        return steps.per_step_ns(total_ns)
    whole_ns = length_ns(facts, steps.start_ns[steps.measured], steps.end_ns[steps.measured]).sum()
    return total_ns * step_time(facts).ns / max(float(whole_ns - steps.pause_ns[steps.measured].sum()), 1.0)


def _unslowed_ns(facts: Facts, reference_ns: int, device_ns: int) -> tuple[int, int]:
    """A step that the host timed while CUPTI stood by, likely and at least without what that added.

    An estimate from the recording decides between the two ends. If it lies above both, something else held the recorded
    steps up and it tells nothing: then the middle.
    """
    worked = facts.estimated_overhead
    if not worked.total_ns:
        return reference_ns, int(reference_ns / ATTACHED)
    worked_ns = min(reference_ns, facts.steps.per_step_ns(worked.where.total_ns))
    least_ns = int(reference_ns - (1 - 1 / ATTACHED) * worked_ns)
    estimated_ns = _estimate(facts, device_ns)
    if estimated_ns >= reference_ns:
        return (least_ns + reference_ns) // 2, least_ns
    return max(least_ns, estimated_ns), least_ns


def _longest_ns(facts: Facts, step_ns: int, factor: float) -> int:
    """How long an estimated step may be if the host's work takes so many times as long, as far as the device does not
    hide it."""
    left_ns = facts.steps.per_step_ns(facts.overhead.where.total_ns - facts.overhead.total_ns)
    hidden_ns = 0 if _waits_for_device(facts) else step_ns - facts.steps.per_step_ns(host_at_work_ns(facts))
    return step_ns + max(0, int((factor - 1) * left_ns) - max(0, hidden_ns))


def _waits_for_device(facts: Facts) -> bool:
    waits = facts.waits
    return bool((facts.measured[waits.rows] & ~waits.own).any())


def _time_of(rows: Sequence[tuple[str, float]], counts: Callable[[str], bool]) -> int:
    return int(sum(time for label, time in rows if counts(label)))


def _without_profiler(recorded: Sequence[tuple[str, float]], unrecorded_ns: int | None) -> list[tuple[str, float]]:
    """A step without the recording holds none of the profiler's work, whatever else it holds."""
    is_known = unrecorded_ns is not None
    return [(label, 0 if is_known and label == PROFILING else time) for label, time in recorded]


def _spread(
    recorded: Sequence[tuple[str, float]], kept: Sequence[tuple[str, float]], step_ns: int
) -> tuple[tuple[str, float], ...]:
    """The rows of a step of this length. Those of the device keep their time, and the others get the rest: at least
    what of them is ``kept`` without the recording, as far as it reaches, and at most all. If the step is shorter than
    the device's rows, all of these are in proportion."""
    most = np.array([time for _, time in recorded], dtype=np.float64)
    least = np.array(
        [
            min(time, left) if is_of_host(label) else time
            for (label, time), (_, left) in zip(recorded, kept, strict=True)
        ]
    )
    own = np.array([is_of_device(label) for label, _ in recorded], dtype=bool)
    low_ns, high_ns, left_ns = least[~own].sum(), most[~own].sum(), max(0.0, step_ns - most[own].sum())
    if low_ns < left_ns < high_ns:
        others = least + (most - least) * (left_ns - low_ns) / (high_ns - low_ns)
    else:
        reaches = low_ns if left_ns <= low_ns else high_ns
        others = (least if left_ns <= low_ns else most) * left_ns / max(reaches, 1.0)
    times = np.where(own, most, others)
    times *= step_ns / max(times.sum(), 1.0)
    return tuple(zip((label for label, _ in recorded), times.tolist(), strict=True))


def _device_ns(facts: Facts) -> int:
    """How long the device alone needs for a step with its usual work. If the host held one step up, the device had no
    more to do in it than in the others."""
    steps, launches = facts.steps, facts.launches
    step = steps.index_of(launches.launched_ns)
    worked_ns = np.bincount(
        step[step >= 0], facts.trace.events.duration_ns[launches.work][step >= 0], minlength=len(steps)
    )[steps.measured]
    return int(device_alone_ns(facts) * steps.usual(worked_ns) / max(worked_ns.sum(), 1))


def _own_work_ns(facts: Facts) -> int:
    """How long the device works on what a step launched. As recorded it may also finish what came before."""
    events, launches = facts.trace.events, facts.launches
    work = launches.work[facts.steps.in_measured(launches.launched_ns)]
    return facts.steps.per_step_ns(union(events.start_ns[work], events.ends_of(work)).total_ns)


def _estimate(facts: Facts, device_ns: int) -> int:
    """The step without what the recording added. A host that waits for nothing runs ahead, step after step, and the
    slower side decides. The short recorded window does not show that: at its beginning the device still waits for the
    first launch."""
    steps = facts.steps
    if _waits_for_device(facts):
        return steps.per_step_ns(replay(facts, Edit()).recorded_ns)
    return max(device_ns, steps.per_step_ns(host_at_work_ns(facts)))
