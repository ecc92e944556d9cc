"""The report that a person reads in a terminal: the verdict, what to change, what was not looked at, where time went.

Without colour the text is plain: no escape codes, no box-drawing characters, nothing wider than ``width``.
Importing this module imports rich, which takes a while: `profkit.report` and the command line do so only for a report.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profkit.findings import Diagnosis, Finding, Kind, Location, Severity
from profkit.report.wording import (
    cost,
    faults,
    group_by_reason,
    opportunities,
    place,
    printable,
    printable_lines,
    remarks,
    run_facts,
    short_place,
    verdict,
    worker_lines,
)
from profkit.units import format_count, format_share, format_time

_STYLES = {Severity.HIGH: "bold red", Severity.MEDIUM: "bold yellow", Severity.LOW: "bold cyan", Severity.INFO: "dim"}
_LABEL_WIDTH = 9
_MAX_MORE_PLACES = 3
_SURE = 0.75
"""Findings less certain than this say how certain they are."""
_BAR_WIDTH = 14
_MIN_WIDTH = 40


def render_text(diagnosis: Diagnosis, width: int = 80, color: bool = False) -> str:
    """The report, wrapped at ``width`` columns (at least 40)."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, _MIN_WIDTH),
        color_system="standard" if color else None,
        force_terminal=color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    _write(console, diagnosis)
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return "\n".join(lines) + "\n"


def _write(console: Console, diagnosis: Diagnosis) -> None:
    console.print(_styled(verdict(diagnosis), "bold"))
    numbers = count(1)
    sections = (
        ("Faults", faults(diagnosis)),
        ("Opportunities: they would help, but change numerics or structure", opportunities(diagnosis)),
    )
    for title, findings in sections:
        _write_title(console, title, bool(findings))
        for finding in findings:
            _write_finding(console, next(numbers), finding)
    _write_remarks(console, remarks(diagnosis))
    if diagnosis.findings:
        console.print()
        rule = printable(diagnosis.findings[0].rule)
        console.print(_styled(f"What a rule means, with an example: profkit explain {rule}"))
    _write_skipped(console, diagnosis)
    _write_recording(console, diagnosis)
    _write_shares(console, diagnosis)
    _write_workers(console, diagnosis)


def _styled(text: str, style: str = "") -> Text:
    return Text(text, style=style, overflow="fold")


def _write_title(console: Console, title: str, wanted: bool) -> None:
    if wanted:
        console.print()
        console.print(_styled(title, "bold underline"))


def _write_finding(console: Console, number: int, finding: Finding) -> None:
    kind = "" if finding.kind is Kind.FAULT else " opportunity"
    heading = _styled(f"{number}. ")
    heading.append(f"{finding.severity.value.upper()}{kind}", _STYLES[finding.severity])
    heading.append(f" {printable(finding.rule)}")
    console.print()
    console.print(heading)
    _write_indented(console, printable(finding.message), 3)
    if finding.location is not None:
        _write_row(console, "where", _where(finding.location, finding.count, console.width - 3 - _LABEL_WIDTH))
        _write_source(console, finding.location)
    elif finding.count > 1:
        _write_row(console, "seen", [format_count(finding.count, "time")])
    _write_row(console, "cost" if finding.kind is Kind.FAULT else "gain", [cost(finding)])
    _write_row(console, "fix", printable_lines(finding.fix))
    _write_row(console, "also at", _more_places(finding.also))
    if finding.confidence < _SURE:
        _write_row(console, "certain", [f"{format_share(finding.confidence)}: check before you change it"])


def _where(location: Location, times: int, width: int) -> list[str]:
    """The place on one line, which is never broken inside a file's name: the folders go below where they do not fit."""
    seen = f", {times:,} times" if times > 1 else ""
    whole = place(location) + seen
    folder, slash, _ = printable(location.file).rpartition("/")
    if len(whole) <= width or not slash:
        return [whole]
    return [place(replace(location, file=location.file.rpartition("/")[2])) + seen, f"folder {folder}/"]


def _write_source(console: Console, location: Location) -> None:
    source = " ".join(printable_lines(location.source)).strip()
    if source:
        _write_indented(console, source, 3 + _LABEL_WIDTH + 4, "italic")


def _more_places(also: tuple[Location, ...]) -> list[str]:
    shown = [place(location) for location in also[:_MAX_MORE_PLACES]]
    left = len(also) - len(shown)
    return [*shown, f"and {left:,} more"] if left else shown


def _write_row(console: Console, label: str, lines: Iterable[str]) -> None:
    """``label`` in a column of its own, the lines beside it; wrapped lines stay in their column."""
    for line in lines:
        row = Table.grid(padding=0)
        row.add_column(width=3 + _LABEL_WIDTH)
        row.add_column(overflow="fold")
        row.add_row(_styled(f"   {label}", "dim"), _styled(line))
        console.print(row)
        label = ""


def _write_indented(console: Console, text: str, indent: int, style: str = "") -> None:
    console.print(Padding(_styled(text, style), (0, 0, 0, indent)))


def _write_remarks(console: Console, findings: list[Finding]) -> None:
    _write_title(console, "Too small to matter, or for your information", bool(findings))
    for finding in findings:
        kind = "" if finding.kind is Kind.FAULT else " (opportunity)"
        where = f" at {short_place(finding.location)}" if finding.location else ""
        _write_bullet(console, f"{printable(finding.rule)}{kind}{where}: {printable(finding.message)}", 2)


def _write_bullet(console: Console, text: str, most_lines: int | None = None) -> None:
    """``text`` behind a dash, cut at a word where it would take more than ``most_lines`` lines."""
    lines = _styled(text).wrap(console, console.width - 2, overflow="fold")
    kept = [line.plain.rstrip() for line in lines[:most_lines]]
    if len(kept) < len(lines):
        kept[-1] = f"{kept[-1][: console.width - 6].rstrip()} ..."
    row = Table.grid(padding=0)
    row.add_row("- ", _styled("\n".join(kept)))
    console.print(row)


def _write_skipped(console: Console, diagnosis: Diagnosis) -> None:
    _write_title(console, "Not looked at", bool(diagnosis.skipped))
    for reason, rules in group_by_reason(diagnosis.skipped):
        _write_bullet(console, f"{reason}: {', '.join(rules)}")


def _write_recording(console: Console, diagnosis: Diagnosis) -> None:
    facts = run_facts(diagnosis)
    _write_title(console, "The recording", bool(facts or diagnosis.health))
    for note in diagnosis.health:
        _write_bullet(console, printable(note))
    for label, value in facts:
        _write_row(console, label, [value])


def _write_shares(console: Console, diagnosis: Diagnosis) -> None:
    shares = diagnosis.timing.shares
    _write_title(console, "Where the step's time went", bool(shares))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for share in shares:
        bar = "#" * round(_BAR_WIDTH * min(max(share.fraction, 0.0), 1.0))
        cells = (printable(share.label), format_time(share.time_ns_per_step), format_share(share.fraction), bar)
        table.add_row(*(_styled(cell) for cell in cells))
    if shares:
        console.print(table)


def _write_workers(console: Console, diagnosis: Diagnosis) -> None:
    _write_title(console, "What the DataLoader's workers did", bool(diagnosis.workers))
    for line in worker_lines(diagnosis):
        _write_bullet(console, line)
