"""The report for a coding agent: at most 2,000 tokens, each finding with its change and the command that proves it."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from profkit.core.printing import visible_row
from profkit.core.units import format_count, format_share
from profkit.diagnosis.fixing.previews import preview, proving_command
from profkit.findings.values import Diagnosis, Finding, Kind, notable
from profkit.report import wording
from profkit.report.wording import printable

MOST_CHARACTERS = 6000
"""2,000 tokens: English and code have three to four characters in each, with any common tokenizer."""
_TEXT = 420
"""Characters of a message or a fix: the longest ones of a rule have about as many."""
_LINE = 160
"""Characters of a line of the program."""
_DIFF_LINES = 36
"""Of a patch: the longest change rewrites a dozen lines, with three around each piece."""
_DIFF = 3000
"""Characters of a patch: half a page, so that what follows it stays on the page."""
_LEFT_OUT = 900
"""Characters for what was not looked at."""


def render_agent(diagnosis: Diagnosis) -> str:
    """The first page."""
    pages = agent_pages(diagnosis, Path.cwd())
    left = f"\n{format_count(len(pages) - 1, 'more page')}: --format json has all findings\n" if pages[1:] else ""
    return pages[0] + left


def agent_pages(diagnosis: Diagnosis, within: Path) -> list[str]:
    """The report in pages of at most `MOST_CHARACTERS`. ``within`` is the folder whose files may be shown and changed;
    names of files are relative to it."""
    findings = notable(diagnosis.findings)
    blocks = [_finding(number, finding, diagnosis, within) for number, finding in enumerate(findings, 1)]
    head, tail = _head(diagnosis, len(findings)), _not_looked(diagnosis)
    pages, page = [], head
    room = MOST_CHARACTERS - len(tail) - 200  # the line that says how many pages there are
    for block in blocks:
        if page != head and len(page) + len(block) > room:
            pages.append(page)
            page = ""
        page += block
    pages.append(page + tail)
    return [one[:MOST_CHARACTERS] for one in pages]


def _head(diagnosis: Diagnosis, count: int) -> str:
    lines = [f"verdict: {_cut(wording.verdict(diagnosis), _TEXT)}"]
    lines += [f"run: {_cut(wording.run_subject(diagnosis), _TEXT)}"]
    lines += [f"doubt about the recording: {_cut(one, _TEXT)}" for one in diagnosis.health[:2]]
    if diagnosis.cannot_judge:
        lines.append(f"cannot judge: {_cut(diagnosis.cannot_judge, _TEXT)}")
    if not count:
        lines.append("findings: none worth a change")
        lines += [f"takes time: {row.where}" for row in wording.costly_places(diagnosis)[:3]]
    return "\n".join(lines) + "\n"


def _finding(number: int, finding: Finding, diagnosis: Diagnosis, within: Path) -> str:
    kind = "fault" if finding.kind is Kind.FAULT else "opportunity"
    certain = format_share(finding.confidence)
    lines = ["", f"{number}. {finding.severity.value} {kind} {printable(finding.rule)}, {certain} certain"]
    if finding.location is not None:
        lines.append(f"at: {_place(finding, within)}")
        source = " ".join(wording.printable_lines(finding.location.source)).strip()
        lines += [f"code: {_cut(source, _LINE)}"] if source else []
    lines.append(f"why: {_cut(finding.message, _TEXT)}")
    lines.append(f"{wording.price_label(finding)}: {wording.cost(finding)}")
    return "\n".join([*lines, *_change(finding, diagnosis, within)]) + "\n"


def _change(finding: Finding, diagnosis: Diagnosis, within: Path) -> list[str]:
    found = preview(finding, within)
    if not found.patch:
        return [f"advice: {_cut(finding.fix, _TEXT)}", f"no change by profkit: {printable(found.refusal)}"]
    rows = [visible_row(row) for row in found.patch.split("\n")[:-1]]
    shown = [row for row, end in zip(rows, accumulate(map(len, rows)), strict=True) if end <= _DIFF][:_DIFF_LINES]
    cut = [f"({format_count(len(rows) - len(shown), 'more line')})"] if len(rows) > len(shown) else []
    safe = f"changes numbers: {printable(found.unsafe)}" if found.unsafe else ""
    command = proving_command(diagnosis.run, finding, bool(found.unsafe))
    is_short = 0 < len(command) <= _TEXT
    proof = f"prove: {printable(command)}" if is_short else "prove: record again after it, then profkit compare"
    return ["change, not proven yet:", *shown, *cut, *([safe] if safe else []), proof]


def _place(finding: Finding, within: Path) -> str:
    assert finding.location is not None
    text = wording.place(finding.location)
    return text.removeprefix(printable(f"{within}/"))


def _not_looked(diagnosis: Diagnosis) -> str:
    groups = [
        f"{wording.skipped_rules(rules)}: {reason}" for reason, rules in wording.group_by_reason(diagnosis.skipped)
    ]
    ignored = wording.ignored_note(diagnosis)
    text = "; ".join([*groups, *([ignored] if ignored else [])])
    return f"\nnot looked at: {_cut(text, _LEFT_OUT)}\n" if text else ""


def _cut(text: str, most: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
