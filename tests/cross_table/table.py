"""The table: a row for each recording, a column for each rule, and below it the unexpected findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from profkit.core.units import format_share
from profkit.diagnosis.pipeline import diagnose_path
from profkit.findings.values import Finding, notable
from profkit.rules import all_rules
from tests.cross_table.recordings import Recorded, read_known

FOUND, MISSED, EXPLAINED, UNEXPLAINED, NOT_LOOKED, SILENT = "#", "-", "o", "!", "?", "."
LEGEND = (
    f"{FOUND} found as expected, {MISSED} expected and not found, {EXPLAINED} found besides for a known reason, "
    f"{UNEXPLAINED} found besides without one, {NOT_LOOKED} could not look, {SILENT} nothing"
)


@dataclass(frozen=True)
class Reason:
    """Why a rule is right to find something in recordings about other rules whose names match ``where``."""

    rule: str
    where: str
    why: str

    def holds(self, rule: str, recording: str) -> bool:
        return self.rule == rule and fnmatchcase(recording, self.where)


@dataclass(frozen=True)
class Hit:
    """An unexpected finding: the largest of its rule in the recording."""

    recording: str
    finding: Finding
    reason: Reason | None


@dataclass(frozen=True)
class Row:
    """One recording. ``marks`` has one character for each rule; ``error`` says why there are none."""

    recorded: Recorded
    marks: str = ""
    hits: tuple[Hit, ...] = ()
    error: str = ""


def read_reasons() -> tuple[Reason, ...]:
    reasons = read_known()["reasons"]
    assert isinstance(reasons, list)
    return tuple(Reason(**one) for one in reasons)


def judge(recorded: Recorded, reasons: Sequence[Reason]) -> Row:
    """Diagnose the recording and compare the findings with the expected ones, ignoring those for information."""
    try:
        diagnosis = diagnose_path(recorded.path)
    except Exception as error:
        return Row(recorded, error=f"{type(error).__name__}: {error}".partition("\n")[0])
    first: dict[str, Finding] = {}
    for finding in notable(diagnosis.findings):
        first.setdefault(finding.rule, finding)
    hits = {
        rule: Hit(recorded.name, finding, next((one for one in reasons if one.holds(rule, recorded.name)), None))
        for rule, finding in first.items()
        if rule not in recorded.expected
    }
    marks = "".join(_mark(rule, recorded, first, hits, diagnosis.skipped) for rule in all_rules())
    return Row(recorded, marks, tuple(hits.values()))


def _mark(rule: str, recorded: Recorded, first: Iterable[str], hits: dict[str, Hit], skipped: Iterable[str]) -> str:
    if rule in hits:
        return EXPLAINED if hits[rule].reason else UNEXPLAINED
    if rule in recorded.expected:
        return FOUND if rule in first else MISSED
    return NOT_LOOKED if rule in skipped else SILENT


def render(rows: Sequence[Row], reasons: Sequence[Reason]) -> str:
    """The cross table, the sums of each rule, and the unexpected findings."""
    width = max((len(row.recorded.name) for row in rows), default=0)
    names = list(all_rules())
    lines = [LEGEND, "", *_header(names, width)]
    lines += [f"{row.recorded.name:<{width}}  {row.marks or row.error}" for row in rows]
    lines += ["", *_sums(rows, names), "", *_hits(rows)]
    used = {hit.reason for row in rows for hit in row.hits}
    idle = [f"  {one.rule} in {one.where}: {one.why}" for one in reasons if one not in used]
    lines += ["", "Reasons that explain nothing here:", *idle] if idle else []
    return "\n".join(line.rstrip() for line in lines)


def _header(names: Sequence[str], width: int) -> list[str]:
    """The rules' names from top to bottom."""
    height = max(map(len, names))
    upright = [name.rjust(height) for name in names]
    return [" " * (width + 2) + "".join(name[at] for name in upright) for at in range(height)]


def _sums(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    lines = [f"{'rule':<28}  found  missed  explained  unexplained"]
    for at, name in enumerate(names):
        column = "".join(row.marks[at] for row in rows if row.marks)
        counts = [column.count(mark) for mark in (FOUND, MISSED, EXPLAINED, UNEXPLAINED)]
        lines.append(f"{name:<28}  {counts[0]:>5}  {counts[1]:>6}  {counts[2]:>9}  {counts[3]:>11}")
    return lines


def _hits(rows: Sequence[Row]) -> list[str]:
    hits = sorted((hit for row in rows for hit in row.hits), key=lambda hit: (hit.finding.rule, hit.recording))
    unexplained = [hit for hit in hits if hit.reason is None]
    lines = [f"Off the diagonal without a reason: {len(unexplained)} of {len(hits)}"]
    lines += [f"  {_report(hit)}" for hit in unexplained]
    lines += ["", "Off the diagonal for a reason:"]
    return [*lines, *(f"  {_report(hit)}: {hit.reason.why}" for hit in hits if hit.reason)]


def _report(hit: Hit) -> str:
    finding = hit.finding
    share = format_share(finding.saving.fraction) if finding.saving else "unpriced"
    where = f" at {finding.location.short}" if finding.location else ""
    return f"{finding.rule} in {hit.recording}, {finding.severity.value} {finding.kind.value}, {share}{where}"
