"""A survey as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.h100.sums import Pitfalls, Sums, sum_up
from tests.h100.survey import PROGRAMS, SCENARIOS, SCRIPTS, Row, Sought

_HEADER = (
    "recording",
    "step ms",
    "measured",
    "ratio",
    "bound by",
    "busy ms",
    "rule expected",
    "found",
    "rank",
    "line",
    "predicted",
    "measured",
    "medium and high",
)
_SHORT_HEADER = ("recording", "step ms", "bound by", "medium and high")


def render(rows: Sequence[Row]) -> str:
    """A table for each section, and below them the sums."""
    sections = [
        _section(name, [row for row in rows if row.recording.section == name])
        for name in (PROGRAMS, SCRIPTS, SCENARIOS)
    ]
    return "\n\n".join([*filter(None, sections), "\n".join(_summary(sum_up(rows)))])


def _section(name: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    header, cells = (_HEADER, _cells) if name == PROGRAMS else (_SHORT_HEADER, _short_cells)
    return f"{name}\n" + _table([header, *map(cells, rows)])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    sought = row.sought
    return (
        row.recording.name,
        _ms(row.step_ms),
        _ms(row.measured_ms),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        row.bound_by or "",
        _ms(row.busy_ms) + (" (GPU-bound)" if row.is_gpu_bound else ""),
        *(_sought_cells(sought) if sought else ("(clean)" if row.clean else "", "", "", "", "", "")),
        row.error or ", ".join(row.grave),
    )


def _sought_cells(sought: Sought) -> tuple[str, ...]:
    return (
        sought.rule + ("" if sought.exists else " (no such rule)"),
        "yes" if sought.found else "NO",
        str(sought.rank or ""),
        _place_cell(sought),
        "" if sought.predicted is None else f"{sought.predicted:.1%} ({sought.low:.1%} to {sought.high:.1%})",
        "" if sought.measured is None else f"{sought.measured:.1%}",
    )


def _place_cell(sought: Sought) -> str:
    if not sought.found:
        return ""
    if sought.line or sought.function:
        return "yes" if sought.line else "function"
    return f"NO ({sought.place}{', besides' * sought.besides})"


def _short_cells(row: Row) -> tuple[str, ...]:
    grave = row.error or ", ".join(row.grave)
    return row.recording.name + (" (clean)" if row.clean else ""), _ms(row.step_ms), row.bound_by or "", grave


def _ms(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.2f}"


def _summary(sums: Sums) -> Iterator[str]:
    yield f"diagnosed: {sums.diagnosed}"
    yield f"step within 10 %, plain traces of GPU-bound programs: {sums.gpu_bound_plain_within}"
    yield f"step within 10 %, all plain traces: {sums.plain_within}"
    yield f"step within 10 %, run directories: {sums.run_within}"
    yield f"step within 20 %, all plain traces: {sums.plain_near}"
    yield f"step within 20 %, run directories: {sums.run_near}"
    yield f"step within 20 % of the range of the seven measured blocks, plain traces: {sums.plain_near_blocks}"
    yield f"step within 20 % of the range of the seven measured blocks, run directories: {sums.run_near_blocks}"
    yield f"step within 10 %, or within 10 % of the stated range, all: {sums.covered}"
    yield f"pitfalls with a rule: {_describe(sums.with_rule)}"
    yield f"pitfalls without a rule yet: {_describe(sums.without_rule)}"
    if sums.median_error is not None:
        yield (
            f"prediction, {sums.priced} found have one: off by {sums.median_error:.1%} in the median, "
            f"{sums.ninth_decile_error:.1%} at the 90th percentile"
        )
    if sums.rank_correlation is not None:
        yield f"rank correlation of predicted and measured: {sums.rank_correlation:.2f}"
    yield f"off by more than 30 % of the step and outside the interval: {_listed(sums.surprises)}"
    yield f"false alarms on {sums.clean} clean recordings: {_listed(sums.false_alarms)}"
    yield f"fixes with a finding of medium or high severity: {sums.grave_fixes}"


def _describe(pitfalls: Pitfalls) -> str:
    return (
        f"{pitfalls.found} found, {pitfalls.on_line} on the line, {pitfalls.in_function} in the function if the "
        f"trace shows no lines, {pitfalls.besides} with the line among further places, "
        f"{pitfalls.among_first} among the first two"
    )


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "none"
