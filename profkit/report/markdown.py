"""The report for a pull request or an issue: GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from profkit.core.units import format_count, format_share, format_time
from profkit.findings.values import DeviceMemory, Diagnosis, Kind, notable
from profkit.report import wording
from profkit.report.groups import Group, group_cost, major_groups, minor_groups, minor_place, other_places
from profkit.report.order import order_note, what_to_change
from profkit.report.ranks_wording import THE_RANKS, short_launch_lines
from profkit.report.run_wording import THE_RUN, phase_rows, run_line
from profkit.report.wording import MAX_MORE_PLACES, printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#+!|~$&]|^[-=])")
_NUMBER = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
"""At its beginning, this makes an item of a list of the text."""


def render_markdown(diagnosis: Diagnosis, verbose: bool = False) -> str:
    """The report as Markdown. All text from the recording is escaped or shown as code. ``verbose`` says why each rule
    could not look that did not."""
    blocks = [f"## {escape(wording.verdict(diagnosis))}"]
    blocks += [escape(line)] if (line := run_line(diagnosis)) else []
    if diagnosis.launch is not None:
        blocks += _list(THE_RANKS, map(escape, short_launch_lines(diagnosis.launch)))
    major = notable(diagnosis.findings)
    blocks += _section(
        what_to_change(major), major_groups(diagnosis), (wording.opportunities_note(major), order_note(major))
    )
    blocks += _list("For your information", map(_minor, minor_groups(diagnosis)))
    places = [
        f"{row.share} {in_code(row.where)}"
        + (f" {in_code(row.source)}" if row.source else "")
        + f", {row.bound}: {'; '.join(map(escape, row.does))}"
        for row in wording.costly_places(diagnosis)
    ]
    blocks += _list(wording.COSTLY_PLACES, places)
    lines = [
        f"{share} {in_code(where)}" + (f" {in_code(source)}" if source else "")
        for share, where, source in wording.hot_lines(diagnosis)
    ]
    blocks += _list(wording.HOT_LINES, lines)
    operators = [f"{share} {in_code(name)}" for share, name in wording.hot_operators(diagnosis)]
    blocks += _list(wording.HOT_OPERATORS, operators)
    for memory in diagnosis.memory:
        blocks += _memory(wording.memory_title(diagnosis, memory), memory)
    blocks += _list("Not looked at", wording.skipped_lines(diagnosis.skipped, verbose, in_code, escape))
    notes = [escape(printable(note)) for note in diagnosis.health]
    notes += [f"{label}: {in_code(value)}" for label, value in wording.run_facts(diagnosis)]
    blocks += _list("The recording", notes)
    blocks += _shares(diagnosis)
    blocks += _phases(diagnosis)
    return "\n\n".join(blocks) + "\n"


def _memory(title: str, memory: DeviceMemory) -> list[str]:
    blocks = _list(title, [f"{label}: {escape(value)}" for label, value in wording.memory_figures(memory)])
    rows = [f"| {escape(label)} | {size} | {share} |" for label, size, share, _ in wording.memory_parts(memory)]
    if rows:
        blocks.append("\n".join(["| held for | bytes | share |", "| --- | ---: | ---: |", *rows]))
    lines = [
        f"{size} {in_code(where)}{f' {in_code(source)}' if source else ''}"
        for size, where, source in wording.memory_lines(memory)
    ]
    return blocks + _list(wording.MEMORY_LINES, lines)


def _section(title: str, groups: list[Group], notes: tuple[str, ...]) -> list[str]:
    if not groups:
        return []
    blocks = [f"### {title}", *filter(None, notes)]
    for group in groups:
        blocks += _finding(group)
    return blocks


def _finding(group: Group) -> list[str]:
    finding = group.first
    label = "" if finding.kind is Kind.FAULT else ", opportunity"
    blocks = [f"#### {in_code(finding.rule)} ({finding.severity.value}{label})", escape(printable(finding.message))]
    rows = []
    if finding.location is not None:
        rows.append(f"- where: {in_code(wording.place(finding.location))}")
    if finding.count > 1:
        rows.append(f"- seen: {format_count(finding.count, 'time')}")
    rows.append(f"- {wording.price_label(finding)}: {escape(group_cost(group))}")
    rows += [f"- alike at: {in_code(line)}" for line in other_places(group)]
    rows += [f"- also at: {in_code(wording.place(location))}" for location in finding.also[:MAX_MORE_PLACES]]
    if len(finding.also) > MAX_MORE_PLACES:
        rows.append(f"- and {format_count(len(finding.also) - MAX_MORE_PLACES, 'more place')}")
    rows.append(f"- confidence: {format_share(finding.confidence)}")
    source = wording.printable_lines(wording.source_text(finding.location.source)) if finding.location else []
    if source:
        blocks.append(_fenced(source, "python"))
    blocks.append("\n".join(rows))
    fix = wording.printable_lines(finding.fix)
    if fix:
        blocks.append(f"Fix: {escape(fix[0])}" if len(fix) == 1 else f"Fix:\n\n{_fenced(fix)}")
    if change := wording.change_lines(finding):
        blocks.append(_fenced(change, "diff"))
    return blocks


def _minor(group: Group) -> str:
    return f"{in_code(group.first.rule)}{escape(minor_place(group))}: {escape(printable(group.first.message))}"


def _list(title: str, items: Iterable[str]) -> list[str]:
    lines = [f"- {item}" for item in items]
    return [f"### {title}", "\n".join(lines)] if lines else []


def _shares(diagnosis: Diagnosis) -> list[str]:
    shares, bound = diagnosis.timing.shares, wording.bound_note(diagnosis.timing)
    if not shares and not bound:
        return []
    title = ["### Where the step's time went", *([escape(bound)] if bound else [])]
    if not shares:
        return title
    rows = ["| part | time per step | share |", "| --- | ---: | ---: |"]
    for share in shares:
        figures = f"{format_time(share.time_ns_per_step)} | {format_share(share.fraction)}"
        rows.append(f"| {escape(printable(share.label))} | {figures} |")
    exchange = wording.communication_note(diagnosis.timing)
    return [*title, "\n".join(rows), *([escape(exchange)] if exchange else [])]


def _phases(diagnosis: Diagnosis) -> list[str]:
    rows = [
        f"| {escape(row.label)} | {row.time} | {row.share} | {in_code(row.place) if row.place else ''} |"
        for row in phase_rows(diagnosis.whole_run)
    ]
    head = ["| phase | time | share | most at |", "| --- | ---: | ---: | --- |"]
    return [f"### {THE_RUN}", "\n".join([*head, *rows])] if rows else []


def escape(text: str) -> str:
    """``text`` with Markdown, HTML and mentions such as ``@torch.no_grad()`` made harmless.

    GitHub looks for mentions after it has removed backslashes, so an empty comment prevents them.
    """
    return _NUMBER.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text)).replace("@", "@<!-- -->")


def in_code(text: str) -> str:
    """``text`` as inline code, between as many backticks as needed (CommonMark 6.1)."""
    words = printable(text)
    ticks = _fence(words, 1)
    pad = " " if words[:1] == "`" or words[-1:] == "`" else ""
    return f"{ticks}{pad}{words}{pad}{ticks}"


def _fenced(lines: list[str], language: str = "") -> str:
    ticks = _fence("\n".join(lines), 3)
    return "\n".join([f"{ticks}{language}", *lines, ticks])


def _fence(text: str, shortest: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(shortest, longest + 1)
