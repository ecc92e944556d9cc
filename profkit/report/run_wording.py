"""The wording of the whole run: one line on it, and a row for each of its phases."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from profkit.core.units import format_share, format_time
from profkit.findings.values import Diagnosis, StepsInRun, WholeRun
from profkit.patterns.whole_run.phases import PROFKIT
from profkit.report.wording import printable, short_place

THE_RUN = "Where the run's time went"
_MOST_PHASES = 4
_LEAST_PHASE = 0.02
"""Phases with less are not worth a place in the line on the run."""
_PARTS, _CHANGED = 8, 1.5
"""The first eighth of the run beside the last. What else runs on the machine often changes less: beside seven other
programs the same steps took 8.9 ms at first and 6.5 ms at last."""
_LEAST_IN_PART = 2


class PhaseRow(Struct, frozen=True):
    """A phase in words, its share as a number, and the line with most of it, empty if it has none."""

    label: str
    time: str
    share: str
    fraction: float
    place: str


def run_line(diagnosis: Diagnosis) -> str:
    """What the whole run spent its time on: ``The run took 48.2 s: 61 % steps, 22 % checkpoints.``; empty if it was not
    watched."""
    return describe_run(diagnosis.whole_run) if diagnosis.whole_run is not None else ""


def describe_run(whole: WholeRun) -> str:
    """`run_line` of this account."""
    phases = sorted((phase for phase in whole.phases if phase.label != PROFKIT), key=lambda phase: -phase.time_ns)
    named = [(phase.fraction, f"{format_share(phase.fraction)} {printable(phase.label)}") for phase in phases]
    shown = ", ".join(text for fraction, text in named[:_MOST_PHASES] if fraction >= _LEAST_PHASE)
    lasted = "The run took" if whole.is_over else "The run was ended from outside after at least"
    own = f" without profkit's own {format_time(whole.own_ns)}" if whole.own_ns >= _LEAST_PHASE * whole.time_ns else ""
    return f"{lasted} {format_time(whole.programs_ns)}{own}{': ' if shown else ''}{shown}.{_steps_changed(whole)}"


def _steps_changed(whole: WholeRun) -> str:
    """How long steps took at first and at last, if that differs by more than a busy machine makes them differ."""
    parts = whole.steps[1:] if len(whole.steps) > _PARTS else ()  # the first warms up
    count = len(parts) // _PARTS
    if count < _LEAST_IN_PART:
        return ""
    first, last = _usual(parts[:count]), _usual(parts[-count:])
    factors = [two / one for one, two in zip(first, last, strict=True)]
    if min(factors) >= _CHANGED or max(factors) <= 1 / _CHANGED:
        return f" Its steps took {format_time(first[0])} at first and {format_time(last[0])} at last."
    return ""


def _usual(parts: Sequence[StepsInRun]) -> tuple[float, float]:
    """The medians of the typical steps and of the shortest ones: other programs on the machine make only the former
    long."""
    typical, shortest = median(one.typical_ns for one in parts), median(one.fastest_ns for one in parts)
    return max(1.0, typical), max(1.0, shortest)


def phase_rows(whole: WholeRun | None) -> list[PhaseRow]:
    """The phases of the run in their order."""
    return [
        PhaseRow(
            printable(phase.label),
            format_time(phase.time_ns),
            format_share(phase.fraction),
            phase.fraction,
            short_place(phase.lines[0].location) if phase.lines else "",
        )
        for phase in (whole.phases if whole is not None else ())
        if phase.time_ns > 0
    ]
