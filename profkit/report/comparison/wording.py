"""The wording of a comparison, shared by all its formats."""

from __future__ import annotations

from profkit.core.units import format_count, format_share, format_time
from profkit.diagnosis.compare.comparison import (
    Comparison,
    Difference,
    Fate,
    FindingMove,
    Move,
    Side,
    StepTime,
    Verdict,
)
from profkit.findings.values import Severity
from profkit.patterns.kernel_names import short_kernel_name
from profkit.report.wording import printable, short_place, source_text

_MANY_TIMES = 10
_WIDE = 3.0
"""An interval that spans more than this factor says how much it is at least, and nothing else."""
_TWICE_AS_FAST = -0.5
"""From here on a factor says more than per cent: 90 and 95 % less are 10 and 20 times as fast."""
OPERATORS_MOVED = "Operators that moved, per recorded step"
LINES_MOVED = "Lines that moved, per recorded step"
MOST_MOVES = 8
"""Rows of a table. Anything that moved less hardly explains the change."""
_COUNTED = "the times alone leave it open, so the calls that one side makes more often are counted; they fit the times"


def headline(comparison: Comparison) -> str:
    """The verdict with its figures."""
    time = comparison.step_time
    before, after = format_time(time.before_ns), format_time(time.after_ns)
    change = f"{signed_share(time.change)}{_interval(time)}"
    if time.is_counted:
        what = "more" if time.change > 0 else "less"
        share = f"{format_share(abs(time.change))} {what} work{_interval(time)}"
        return f"{time.verdict.value.capitalize()}: a step does {share}; it took {before} before and {after} after"
    if time.verdict is Verdict.BETTER and time.change <= _TWICE_AS_FAST:
        return f"Better: a step takes {after} instead of {before}, {_times_as_fast(time)}"
    if time.verdict in (Verdict.BETTER, Verdict.WORSE):
        return f"{time.verdict.value.capitalize()}: a step takes {after} instead of {before}, {change}"
    if time.verdict is Verdict.NO_DIFFERENCE:
        return f"No difference: a step takes {before} before and {after} after, {change}"
    return f"Inconclusive: a step takes {before} before and {after} after, {change}"


def _times_as_fast(time: StepTime) -> str:
    """``14 times as fast (1.4 to 30)``, or at least so many times where nobody knows how many it is at most."""
    likely = _faster(time.change)
    told = f"{_factor(likely)} times as fast"
    if time.low is None or time.high is None:
        return told
    least, most = _faster(time.high), _faster(time.low)
    if most > _WIDE * likely:
        return f"{told} (at least {_factor(least)} times)"
    return f"{told} ({_factor(least)} to {_factor(most)})"


def _faster(change: float) -> float:
    return 1 / max(1 + change, 0.0001)


def _factor(times: float) -> str:
    return f"{times:,.0f}" if times >= 10 else f"{times:.1f}"


def _interval(time: StepTime) -> str:
    if time.low is None or time.high is None:
        return ""
    if time.low > -1 and (1 + time.high) / (1 + time.low) > _WIDE and time.low * time.high > 0:
        return f" (by {format_share(min(abs(time.low), abs(time.high)))} at least)"
    return f" (95 % interval {signed_share(time.low)} to {signed_share(time.high)})"


def signed_share(fraction: float) -> str:
    """``0.05`` → ``'+5.0 %'``; from ten times as long on ``724.0`` → ``'725 times as long'``."""
    if fraction >= _MANY_TIMES - 1:
        return f"{fraction + 1:,.0f} times as long"
    text = format_share(fraction)
    return f"+{text}" if fraction > 0 and text[0].isdigit() else text


def explanation(comparison: Comparison) -> list[str]:
    """What the verdict rests on, or how to get one if it is open."""
    time = comparison.step_time
    runs = [len(side.paths) for side in (comparison.before, comparison.after)]
    steps = f"{comparison.before.steps} and {comparison.after.steps} {time.steps}"
    band = format_share(time.band).replace(".0", "")
    notes = [
        f"{steps} of {format_count(sum(runs), 'run')}; {time.method}",
        *([_COUNTED] if time.is_counted else []),
        f"operators per step: {_number(comparison.before.calls)} before, {_number(comparison.after.calls)} after",
        f"an interval within {band} either way counts as no difference",
        *(printable(reason) for reason in time.reasons),
    ]
    if time.verdict is Verdict.INCONCLUSIVE and time.low is not None:
        notes.append("for a verdict, record several runs of each side in turns and compare the two directories")
    return notes


def side_facts(side: Side) -> str:
    """``traces/a: python train.py, cpu, torch 2.13.0``."""
    more = f" and {len(side.paths) - 1} more" if len(side.paths) > 1 else ""
    facts = [" ".join(side.command), side.device, f"torch {side.torch}" if side.torch else None]
    known = ", ".join(printable(fact) for fact in facts if fact)
    return f"{printable(side.paths[0])}{more}" + (f": {known}" if known else "")


def difference_notes(comparison: Comparison) -> list[str]:
    """What differs between the sides besides the program's work."""
    return [*map(difference_note, comparison.differences)] or ["nothing that the recordings show"]


def difference_note(difference: Difference) -> str:
    return f"{printable(difference.what)}: {printable(difference.before)} before, {printable(difference.after)} after"


def move_cells(move: Move) -> tuple[str, str, str, str]:
    """Time before, time after, change, calls per step."""
    change = format_time(move.change_ns)
    calls = _number(move.before_calls)
    if move.calls_changed:
        calls = f"{calls} -> {_number(move.after_calls)}"
    signed = f"+{change}" if move.change_ns > 0 else change
    return format_time(move.before_ns), format_time(move.after_ns), signed, calls


def _number(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.1f}"


def move_name(move: Move) -> str:
    """``aten::mm``, ``reduce_kernel (MeanOps)``, or ``train.py:31 loss = loss + penalty`` for a line."""
    if move.location is None:
        return printable(short_kernel_name(move.name))
    return f"{short_place(move.location)} {printable(source_text(move.name))}"


def finding_note(move: FindingMove) -> str:
    """``new: retained-graph at train.py:31 (high, 43 % of the step)``."""
    where = f" at {short_place(move.location)}" if move.location else ""
    before = _weight(move.before_severity, move.before_fraction)
    after = _weight(move.after_severity, move.after_fraction)
    if move.fate is Fate.UNKNOWN:
        return f"not known: {printable(move.rule)}{where}: on one side {printable(move.reason)}"
    if move.fate is Fate.CHANGED:
        return f"changed: {printable(move.rule)}{where} ({before} before; {after} after)"
    return f"{move.fate.value}: {printable(move.rule)}{where} ({after or before})"


def _weight(severity: Severity | None, fraction: float | None) -> str:
    if severity is None:
        return ""
    return severity.value + (f", {format_share(fraction)} of the step" if fraction else "")
