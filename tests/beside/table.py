"""The rows as text, and as the tables of RESULTS.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.beside.comparing import Difference
from tests.beside.declared import Program
from tests.beside.modes import MODES

_PAGE = Path(__file__).with_name("RESULTS.md")
_HEAD = """# What profkit changes in programs

`python -m tests.beside --write` runs each program of `tests/beside/programs/` bare and in three ways under profkit,
and compares its output, status, files, processes, random states and final numbers, bit by bit.
`--load` has four busy processes beside. A difference is documented if a page of `docs/` states it.
"""


@dataclass(frozen=True)
class Result:
    """Of one program in one mode: either skipped, or compared."""

    mode: str
    skipped: str = ""
    differences: tuple[tuple[Difference, str], ...] = ()
    """Each with the page that states it, or nothing."""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        if self.skipped:
            return "skipped"
        if any(not page for _, page in self.differences):
            return "DIFFERS"
        return "documented" if self.differences else "same"


@dataclass(frozen=True)
class Row:
    program: Program
    results: tuple[Result, ...]
    broken: str = ""
    """Why the program itself cannot be compared."""


def render(row: Row) -> str:
    if row.broken:
        return f"{row.program.name}: BROKEN: {row.broken}"
    words = ", ".join(f"{result.mode} {result.word}" for result in row.results)
    lines = [f"{row.program.name}: {words}"]
    for result in row.results:
        if result.skipped:
            lines.append(f"  {result.mode}: {result.skipped}")
        for one, page in result.differences:
            lines.append(f"  {result.mode} {one.kind}: {one.text} ({page or 'NOT DOCUMENTED'})")
    return "\n".join(lines)


def sums(rows: Sequence[Row]) -> str:
    words = [result.word for row in rows for result in row.results]
    broken = sum(bool(row.broken) for row in rows)
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("same", "documented", "DIFFERS", "skipped"))
    return f"{len(rows)} programs, {len(words)} comparisons: {counts}; {broken} programs broken"


def write(rows: Sequence[Row], condition: str, machine: str) -> None:
    """Replace the part of RESULTS.md that is about this condition."""
    text = _PAGE.read_text(encoding="utf-8") if _PAGE.exists() else _HEAD
    parts = re.split(r"(?m)^(?=## )", text)
    head, sections = parts[0], {part.splitlines()[0]: part for part in parts[1:]}
    sections[f"## {condition}"] = _section(rows, condition, machine)
    _PAGE.write_text(head + "".join(sections[name] for name in sorted(sections)), encoding="utf-8")


def _section(rows: Sequence[Row], condition: str, machine: str) -> str:
    lines = [f"## {condition}", "", machine, "", sums(rows) + ".", ""]
    lines += [f"| program | what it does | {' | '.join(MODES)} |", "|---|---|" + "---|" * len(MODES)]
    for row in rows:
        by_mode = {result.mode: result.word for result in row.results}
        cells = [by_mode.get(mode, "broken" if row.broken else "") for mode in MODES]
        lines.append(f"| {row.program.name} | {_cell(row.program.says)} | {' | '.join(cells)} |")
    details = [line for row in rows for line in _details(row)]
    return "\n".join([*lines, "", *details, ""]) + ("\n" if details else "")


def _details(row: Row) -> list[str]:
    lines = [f"- {row.program.name}, broken: {row.broken}"] if row.broken else []
    for result in row.results:
        if result.skipped:
            lines.append(f"- {row.program.name}, {result.mode}, skipped: {result.skipped}")
        for one, page in result.differences:
            lines.append(f"- {row.program.name}, {result.mode}, {one.kind}: `{one.text}` ({page or 'not documented'})")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").rstrip(".")
