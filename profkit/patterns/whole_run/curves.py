"""What was seen during the whole run beside its phases: memory, devices, steps, and when these were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from profkit.derive.facts import Facts
from profkit.derive.steps.boundaries import UNDIVIDED
from profkit.findings.values import RunCurve, StepsInRun
from profkit.run.whole_run import RunAccount, StepSpan

MEMORY = "memory of the process"
_MOST_POINTS = 200
"""A page has some hundred columns; of more points the highest of each part of the run are kept."""
_LEAST_TOGETHER_NS = 50_000_000
"""Steps of a recording are told together up to this time: of single short ones a curve shows no more than noise."""


def early_ns(account: RunAccount) -> int:
    """From the start of the process to the beginning of the watch, 0 if that is not known."""
    return max(0, account.begun_ns - account.started_ns) if account.started_ns else 0


def curves_of(account: RunAccount) -> tuple[RunCurve, ...]:
    """Memory of the process, and the use of each GPU that was looked at."""
    early, lasted = early_ns(account), max(account.until_ns - account.begun_ns, 1)
    seen = [RunCurve(MEMORY, _highest(account.memory, early, lasted), is_bytes=True)]
    for device in account.devices:
        busy = [(sample.at_ns, sample.busy) for sample in device.samples if sample.busy >= 0]
        seen.append(RunCurve(f"use of GPU {device.index}", _highest(busy, early, lasted)))
    return tuple(curve for curve in seen if len(curve.points) > 1)


def _highest(points: Iterable[tuple[int, float]], early: int, lasted: int) -> tuple[tuple[int, float], ...]:
    """The highest point of each part, counted from the start of the process."""
    highest: dict[int, tuple[int, float]] = {}
    for at_ns, value in points:
        part = min(max(at_ns, 0) * _MOST_POINTS // lasted, _MOST_POINTS - 1)
        if part not in highest or value > highest[part][1]:
            highest[part] = early + at_ns, float(value)
    return tuple(highest[part] for part in sorted(highest))


def recorded_within(facts: Facts) -> tuple[int, int] | None:
    """When the recorded steps began and ended. None if that does not lie within the watch: the trace has a clock of its
    own, which may have been set."""
    account, steps = facts.account, facts.steps if facts.has_trace else None
    if steps is None or not len(steps) or steps.source in UNDIVIDED:
        return None
    begun, ended = (int(time_ns) + facts.trace.base_ns for time_ns in (steps.begun_ns[0], steps.done_ns[-1]))
    if not account.begun_ns <= begun < ended <= account.until_ns:
        return None
    since_ns = account.begun_ns - early_ns(account)
    return begun - since_ns, ended - since_ns


def steps_in_run(facts: Facts) -> tuple[StepsInRun, ...]:
    """How long steps took as the run went on. A run that was only watched has those whose ends were seen, another one
    those that were timed before and after a recording; those of the recording itself took longer."""
    account, early = facts.account, early_ns(facts.account)
    known = [span for span in account.steps or _timed_steps(facts) if span.steps > 0]
    every = max(1, -(-len(known) // _MOST_POINTS))
    return tuple(_together(known[at : at + every], early) for at in range(0, len(known), every))


def _timed_steps(facts: Facts) -> list[StepSpan]:
    """Those around a recording; none if they do not lie within the watch, by a clock that was set meanwhile."""
    account, run = facts.account, facts.run
    parts = (run.earlier_step_ns, run.earlier_until_ns), (run.later_step_ns, run.timed_until_ns)
    spans = [span for took_ns, until_ns in parts for span in _spans(took_ns, until_ns - account.begun_ns)]
    lasted = account.until_ns - account.begun_ns
    return spans if all(span.took_ns <= span.until_ns <= lasted for span in spans) else []


def _spans(took_ns: Sequence[int], until_ns: int) -> list[StepSpan]:
    """Steps in a row, the last of which ended then since the beginning of the watch."""
    each = max(_LEAST_TOGETHER_NS, sum(took_ns) // _MOST_POINTS)
    groups: list[list[int]] = []
    for took in took_ns:
        if not groups or sum(groups[-1]) >= each:
            groups.append([])
        groups[-1].append(took)
    begun_ns = until_ns - sum(took_ns)
    ends = accumulate(map(sum, groups), initial=begun_ns)
    next(ends)
    return [
        StepSpan(end, len(group), sum(group), min(group), max(group)) for end, group in zip(ends, groups, strict=True)
    ]


def _together(spans: Sequence[StepSpan], early: int) -> StepsInRun:
    steps = sum(span.steps for span in spans)
    return StepsInRun(
        from_ns=early + max(0, spans[0].until_ns - spans[0].took_ns),
        until_ns=early + spans[-1].until_ns,
        steps=steps,
        typical_ns=int(sum(span.typical_ns * span.steps for span in spans) / steps),
        fastest_ns=min(span.fastest_ns for span in spans),
        slowest_ns=max(span.slowest_ns for span in spans),
    )
