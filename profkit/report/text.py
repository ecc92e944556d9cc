"""The report for a terminal: the verdict, what to change, what was not looked at, where the time went.

Without colour the text is plain: no escape codes, no box-drawing characters, nothing wider than ``width``.
"""

from __future__ import annotations

from dataclasses import replace

from profkit.core.units import format_count, format_share, format_time
from profkit.findings.roofline import Roofline
from profkit.findings.values import Diagnosis, Kind, Location, Severity, notable
from profkit.report import wording
from profkit.report.device.roofline import (
    FAMILY_HEAD,
    LIMITS,
    POINT_HEAD,
    ROOFLINE,
    family_rows,
    point_rows,
    summary,
)
from profkit.report.device.serving import SERVING, sentences
from profkit.report.groups import Group, group_cost, major_groups, minor_groups, minor_place, other_places
from profkit.report.order import order_note, what_to_change
from profkit.report.page import BOLD, DIM, ITALIC, Page, Style
from profkit.report.ranks_wording import THE_RANKS, short_launch_lines
from profkit.report.run_wording import THE_RUN, phase_rows, run_line
from profkit.report.wording import MAX_MORE_PLACES, printable

_LOOKS: dict[Severity, Style] = {
    Severity.HIGH: {"fg": "red", "bold": True},
    Severity.MEDIUM: {"fg": "yellow", "bold": True},
    Severity.LOW: {"fg": "cyan", "bold": True},
    Severity.INFO: DIM,
}
_INDENT = 3
_SOURCE_INDENT = 16
_HOT_INDENT = 8
_CERTAIN = 0.75
"""Findings with less confidence show it."""
_FIGURES = frozenset(range(1, 6))
"""Columns of the roofline's tables."""
_MOST_ROOFLINE_FAMILIES = 8
_BAR_WIDTH = 14
"""With the other columns a table still fits into 80; a mark stands for about 7 %."""


def render_text(diagnosis: Diagnosis, width: int = 80, color: bool = False, verbose: bool = False) -> str:
    """The report, wrapped at ``width`` columns (at least 40). ``verbose`` says why each rule could not look that did
    not."""
    page = Page(width, color)
    page.write(wording.verdict(diagnosis), BOLD)
    if run := run_line(diagnosis):
        page.write(run)
    if diagnosis.launch is not None:
        page.write_title(THE_RANKS)
        for line in short_launch_lines(diagnosis.launch):
            page.write_bullet(line)
    major = notable(diagnosis.findings)
    _write_title(page, what_to_change(major), bool(major))
    for note in filter(None, (wording.opportunities_note(major), order_note(major))):
        page.write(note)
    for group in major_groups(diagnosis):
        _write_group(page, group)
    minor = minor_groups(diagnosis)
    _write_minor(page, minor)
    if major or minor:
        page.write()
        page.write(f"What a rule means, with an example: profkit explain {printable(diagnosis.findings[0].rule)}")
        if any(finding.account is not None for finding in diagnosis.findings):
            page.write("How a saving comes about, piece by piece: profkit explain RUN --finding 1")
    _write_costliest(page, diagnosis)
    _write_hottest(page, diagnosis)
    _write_memory(page, diagnosis)
    _write_skipped(page, diagnosis, verbose)
    _write_recording(page, diagnosis)
    _write_shares(page, diagnosis)
    _write_kernels(page, diagnosis)
    _write_serving(page, diagnosis)
    if diagnosis.roofline is not None:
        _write_short_roofline(page, diagnosis.roofline)
    _write_phases(page, diagnosis)
    _write_workers(page, diagnosis)
    return str(page)


def _write_title(page: Page, title: str, wanted: bool) -> None:
    if wanted:
        page.write_title(title)


def _write_group(page: Page, group: Group) -> None:
    finding = group.first
    kind = "" if finding.kind is Kind.FAULT else " opportunity"
    severity = f"{finding.severity.value.upper()}{kind}"
    page.write()
    page.write_parts(
        (f"{group.label}. ", None), (severity, _LOOKS[finding.severity]), (f" {printable(finding.rule)}", None)
    )
    page.write(printable(finding.message), indent=_INDENT)
    if finding.location is not None:
        page.write_row("where", _where(finding.location, finding.count, page.room))
        source = " ".join(wording.printable_lines(wording.source_text(finding.location.source))).strip()
        if source:
            page.write(source, ITALIC, _SOURCE_INDENT)
    elif finding.count > 1:
        page.write_row("seen", [format_count(finding.count, "time")])
    page.write_row(wording.price_label(finding), [group_cost(group)])
    page.write_row("alike at", other_places(group))
    page.write_row("fix", wording.printable_lines(finding.fix))
    page.write_row("change", wording.change_lines(finding))
    page.write_row("also at", _more_places(finding.also))
    if finding.confidence < _CERTAIN:
        page.write_row("certain", [f"{format_share(finding.confidence)}: check before you change anything"])


def _where(location: Location, times: int, width: int) -> list[str]:
    """The place on one line, never broken inside a file name: folders that do not fit go on the next line."""
    seen = f", {times:,} times" if times > 1 else ""
    whole = wording.place(location) + seen
    folder, slash, _ = printable(location.file).rpartition("/")
    if len(whole) <= width or not slash:
        return [whole]
    return [wording.place(replace(location, file=location.file.rpartition("/")[2])) + seen, f"folder {folder}/"]


def _more_places(also: tuple[Location, ...]) -> list[str]:
    shown = [wording.place(location) for location in also[:MAX_MORE_PLACES]]
    left = len(also) - len(shown)
    return [*shown, f"and {left:,} more"] if left else shown


def _write_minor(page: Page, groups: list[Group]) -> None:
    _write_title(page, "Too small to matter, or for your information", bool(groups))
    for group in groups:
        kind = "" if group.first.kind is Kind.FAULT else " (opportunity)"
        what = f"{printable(group.first.rule)}{kind}{minor_place(group)}: {printable(group.first.message)}"
        page.write_bullet(what, most_lines=1)


def _write_costliest(page: Page, diagnosis: Diagnosis) -> None:
    rows = wording.costly_places(diagnosis)
    _write_title(page, wording.COSTLY_PLACES, bool(rows))
    if rows:
        page.write(wording.COSTLY_NOTE)
    for row in rows:
        page.write()
        page.write_parts((f"{row.share:>6}  ", None), (row.where, BOLD), (f", {row.bound}", None))
        if row.source:
            page.write(row.source, ITALIC, _HOT_INDENT)
        for doing in row.does:
            page.write_bullet(doing, indent=_HOT_INDENT)


def _write_hottest(page: Page, diagnosis: Diagnosis) -> None:
    lines, operators = wording.hot_lines(diagnosis), wording.hot_operators(diagnosis)
    _write_title(page, wording.HOT_LINES, bool(lines))
    for share, where, source in lines:
        page.write_parts((f"{share:>6}  ", None), (where, BOLD))
        if source:
            page.write(source, ITALIC, _HOT_INDENT)
    _write_title(page, wording.HOT_OPERATORS, bool(operators))
    for share, name in operators:
        page.write(f"{share:>6}  {name}")


def _write_memory(page: Page, diagnosis: Diagnosis) -> None:
    for memory in diagnosis.memory:
        page.write_title(wording.memory_title(diagnosis, memory))
        for label, value in wording.memory_figures(memory):
            page.write_row(label, [value])
        rows = [(label, size, share, _bar(fraction)) for label, size, share, fraction in wording.memory_parts(memory)]
        if rows:
            page.write()
            page.write_table(rows, right=frozenset({1, 2}))
        lines = wording.memory_lines(memory)
        if lines:
            page.write()
            page.write(f"{wording.MEMORY_LINES}:")
        for size, where, source in lines:
            page.write_parts((f"{size:>8}  ", None), (where, BOLD))
            if source:
                page.write(source, ITALIC, _HOT_INDENT + 2)


def _bar(fraction: float) -> str:
    return "#" * round(_BAR_WIDTH * min(max(fraction, 0.0), 1.0))


def _write_skipped(page: Page, diagnosis: Diagnosis, verbose: bool) -> None:
    ignored = wording.ignored_note(diagnosis)
    _write_title(page, "Not looked at", bool(diagnosis.skipped or ignored))
    if ignored:
        page.write_bullet(ignored)
    for line in wording.skipped_lines(diagnosis.skipped, verbose):
        page.write_bullet(line)


def _write_recording(page: Page, diagnosis: Diagnosis) -> None:
    facts = wording.run_facts(diagnosis)
    _write_title(page, "The recording", bool(facts or diagnosis.health))
    for note in diagnosis.health:
        page.write_bullet(printable(note))
    for label, value in facts:
        page.write_row(label, [value])


def _write_shares(page: Page, diagnosis: Diagnosis) -> None:
    shares, bound = diagnosis.timing.shares, wording.bound_note(diagnosis.timing)
    _write_title(page, "Where the step's time went", bool(shares or bound))
    if bound:
        page.write(bound)
    rows = []
    for share in shares:
        figures = format_time(share.time_ns_per_step), format_share(share.fraction)
        rows.append((printable(share.label), *figures, _bar(share.fraction)))
    if rows:
        page.write_table(rows, right=frozenset({1, 2}))
    if exchange := wording.communication_note(diagnosis.timing):
        page.write(exchange)


def _write_kernels(page: Page, diagnosis: Diagnosis) -> None:
    rows = wording.kernel_rows(diagnosis)
    _write_title(page, wording.KERNELS, bool(rows))
    for row in rows:
        page.write_parts((f"{row.share:>6}  ", None), (row.family, BOLD), (f", {row.in_a_step}", None))
        page.write(row.most, ITALIC, _HOT_INDENT)


def _write_serving(page: Page, diagnosis: Diagnosis) -> None:
    _write_title(page, SERVING, bool(diagnosis.serving))
    for one in diagnosis.serving:
        page.write_bullet(" ".join(sentences(one)))


def _write_short_roofline(page: Page, roofline: Roofline) -> None:
    """The step and its families; `profkit roofline` lists the launches."""
    page.write_title(ROOFLINE)
    for sentence in summary(roofline):
        page.write(sentence)
    page.write_table([FAMILY_HEAD, *family_rows(roofline)[:_MOST_ROOFLINE_FAMILIES]], right=_FIGURES)


def write_roofline(page: Page, roofline: Roofline, most: int) -> None:
    """The whole roofline: the step, its families, and its largest launches."""
    for sentence in summary(roofline):
        page.write(sentence)
    page.write_title("By kind of work")
    page.write_table([FAMILY_HEAD, *family_rows(roofline)], right=_FIGURES)
    page.write_title("The launches that take most")
    page.write_table([POINT_HEAD, *point_rows(roofline, most)], right=_FIGURES)
    page.write(LIMITS, DIM)


def _write_phases(page: Page, diagnosis: Diagnosis) -> None:
    rows = [(row.label, row.time, row.share, _bar(row.fraction), row.place) for row in phase_rows(diagnosis.whole_run)]
    _write_title(page, THE_RUN, bool(rows))
    if rows:
        page.write_table(rows, right=frozenset({1, 2}))


def _write_workers(page: Page, diagnosis: Diagnosis) -> None:
    _write_title(page, "What the DataLoader's workers did", bool(diagnosis.workers))
    for line in wording.worker_lines(diagnosis):
        page.write_bullet(line)
