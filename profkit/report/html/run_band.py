"""The whole run as pictures on one axis of time: its phases, where its findings lie, how long its steps took, what it
held."""

from __future__ import annotations

from itertools import groupby
from statistics import median

from msgspec import Struct

from profkit.core.units import format_bytes, format_share, format_time
from profkit.findings.values import Diagnosis, Finding, RunCurve, Severity, WholeRun
from profkit.patterns.whole_run.phases import (
    AFTER,
    BEFORE,
    BETWEEN,
    COMPILING,
    DATA,
    EVALUATION,
    IMPORTS,
    LOADING,
    LOGGING,
    NETWORK,
    PROFKIT,
    PROGRAM,
    SAVING,
    START,
    STEPS,
    UNGRADED,
)
from profkit.report.html.drawing import Piece, percent
from profkit.report.run_wording import phase_rows
from profkit.report.wording import printable

_LEAST_WIDTH = 0.3
"""Per cent of the width: a frame of three pixels is seen."""
_TICKS = 4
"""Parts of the axis: five labels fit on a phone."""
_ROOM, _MOST_MEDIANS = 1.25, 4.0
"""Over the longest typical step, up to so many times their median: what took longer, such as an evaluation, is cut off
there. Steps that grow evenly stay below it."""

_PHASE_HUES = {
    START: "idle",
    IMPORTS: "idle",
    LOADING: "copy",
    BEFORE: "other",
    COMPILING: "launch",
    STEPS: "compute",
    DATA: "data",
    EVALUATION: "backward",
    UNGRADED: "backward",
    BETWEEN: "other",
    SAVING: "copy",
    NETWORK: "talk",
    LOGGING: "wait",
    AFTER: "idle",
    PROGRAM: "other",
    PROFKIT: "profkit",
}


def phases(whole: WholeRun | None) -> list[Piece]:
    """The phases of the whole run, as a legend: their colours, labels and values."""
    rows = phase_rows(whole)
    return [
        Piece(0, percent(row.fraction), _PHASE_HUES.get(row.label, "other"), row.label, f"{row.time}, {row.share}")
        for row in rows
    ]


def band(whole: WholeRun | None) -> list[Piece]:
    """The run from left to right: a piece for each stretch that one phase takes most of."""
    if whole is None or not whole.band:
        return []
    pieces, at, columns = [], 0, len(whole.band)
    for number, same in groupby(whole.band):
        count = sum(1 for _ in same)
        label = printable(whole.phases[number].label) if 0 <= number < len(whole.phases) else ""
        value = f"{format_time(at * whole.column_ns)} to {format_time((at + count) * whole.column_ns)}"
        place = round(100 * at / columns, 3), round(100 * count / columns, 3)
        pieces.append(Piece(*place, _PHASE_HUES.get(label, "other"), label, value))
        at += count
    return pieces


def ticks(whole: WholeRun | None) -> list[tuple[str, str, str]]:
    """Labels of the axis below the band: where each lies, how it is anchored, and the time there."""
    if whole is None or not whole.band:
        return []
    length_ns = len(whole.band) * whole.column_ns
    anchors = ("start", *("middle",) * (_TICKS - 1), "end")
    return [
        (f"{100 * at / _TICKS:g}%", anchor, format_time(length_ns * at / _TICKS) if at else "0 s")
        for at, anchor in enumerate(anchors)
    ]


class MarkedRun(Struct, frozen=True):
    """A finding of the whole run, with its number in the report: where on the band its line was at work."""

    number: int
    severity: str
    label: str
    pieces: tuple[Piece, ...]


def marked(diagnosis: Diagnosis) -> list[MarkedRun]:
    """The findings to act on whose times in the run are known."""
    whole = diagnosis.whole_run
    if whole is None or not whole.band:
        return []
    shown = [one for one in diagnosis.findings if one.severity is not Severity.INFO]
    return [_marked(whole, number, one) for number, one in enumerate(shown, 1) if one.in_run]


def _marked(whole: WholeRun, number: int, finding: Finding) -> MarkedRun:
    pieces = tuple(
        _piece(whole, span, "", f"{format_time(span[0])} to {format_time(span[1])}") for span in finding.in_run
    )
    saving = f", {format_time(finding.saving.run_ns)}" if finding.saving and finding.saving.run_ns else ""
    return MarkedRun(number, finding.severity.value, f"{number}. {printable(finding.rule)}{saving}", pieces)


def recorded_part(whole: WholeRun | None) -> Piece | None:
    """Where in the band the recorded steps lie, at least a line wide; None if that is not known."""
    if whole is None or whole.recorded_ns is None or not whole.band:
        return None
    value = f"{format_time(whole.recorded_ns[0])} to {format_time(whole.recorded_ns[1])}"
    return _piece(whole, whole.recorded_ns, "recorded", value)


def _piece(whole: WholeRun, span: tuple[int, int], label: str, value: str) -> Piece:
    """A part of the run, at least a line wide."""
    begin, end = (min(max(_along(whole, time_ns), 0.0), 100.0) for time_ns in span)
    width = max(end - begin, _LEAST_WIDTH)
    return Piece(round(min(begin, 100 - width), 3), round(width, 3), "", label, value)


class StepsOfRun(Struct, frozen=True):
    """How long steps took over the run, in a field of 100 by 100 from 0 to ``most``: the path of the typical ones, the
    path of the area from the shortest to the longest, and both in words."""

    most: str
    typical: str
    area: str
    label: str


def steps(whole: WholeRun | None) -> StepsOfRun | None:
    """None if the steps of fewer than two parts of the run are known."""
    if whole is None or not whole.band or len(whole.steps) < 2:
        return None
    times = [max(part.typical_ns, 1) for part in whole.steps]
    top = _ROOM * min(max(times), _MOST_MEDIANS * median(times))
    typical, area = [], []
    for part in whole.steps:
        begin, end = (min(max(_along(whole, time_ns), 0.0), 100.0) for time_ns in (part.from_ns, part.until_ns))
        at, low, high = (
            100 - 100 * min(max(ns, 0) / top, 1.0) for ns in (part.typical_ns, part.fastest_ns, part.slowest_ns)
        )
        typical.append(f"M{begin:.2f} {at:.1f}H{end:.2f}")
        area.append(f"M{begin:.2f} {low:.1f}H{end:.2f}V{high:.1f}H{begin:.2f}z")
    return StepsOfRun(format_time(top), "".join(typical), "".join(area), _in_words(whole, top))


def _in_words(whole: WholeRun, top_ns: float) -> str:
    first, last, most_ns = whole.steps[0], whole.steps[-1], max(part.slowest_ns for part in whole.steps)
    return (
        f"Time of a step, {sum(part.steps for part in whole.steps):,} of them: {format_time(first.typical_ns)} at "
        f"first, {format_time(last.typical_ns)} at last. Shaded: from the shortest to the longest, which took "
        f"{format_time(most_ns)}{'' if most_ns <= top_ns else ', more than is shown'}."
    )


class CurveOfRun(Struct, frozen=True):
    """A curve below the band: its label, its highest value, and the path of its area in a field of 100 by 100."""

    label: str
    most: str
    path: str


def curves(whole: WholeRun | None) -> list[CurveOfRun]:
    """What was seen again and again during the run. Between two looks the earlier counts."""
    if whole is None or not whole.band:
        return []
    return [_curve(whole, one) for one in whole.curves if max((value for _, value in one.points), default=0) > 0]


def _curve(whole: WholeRun, curve: RunCurve) -> CurveOfRun:
    most = max(value for _, value in curve.points)
    top = most if curve.is_bytes else 1.0
    xs = [min(max(_along(whole, time_ns), 0.0), 100.0) for time_ns, _ in curve.points]
    ys = [100 - 100 * min(max(value / top, 0.0), 1.0) for _, value in curve.points]
    steps = "".join(f"H{x:.2f}V{y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True))
    most_text = format_bytes(int(most)) if curve.is_bytes else format_share(most)
    return CurveOfRun(printable(curve.label), most_text, f"M{xs[0]:.2f} 100V{ys[0]:.1f}{steps}V100Z")


def _along(whole: WholeRun, time_ns: int) -> float:
    """Where a time since the start of the process lies on the band, in per cent of its length."""
    return 100 * time_ns / max(len(whole.band) * whole.column_ns, 1)
