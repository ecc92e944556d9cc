"""What was seen during the whole run beside its phases: memory, devices, and when the steps were recorded."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.derive.facts import Facts
from profkit.derive.steps.boundaries import UNDIVIDED
from profkit.findings.values import RunCurve
from profkit.run.whole_run import RunAccount

MEMORY = "memory of the process"
_MOST_POINTS = 200
"""A page has some hundred columns; of more points the highest of each part of the run are kept."""


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
