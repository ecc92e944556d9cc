"""The rows as text, and as the tables of RESULTS.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
    return _sums(
        len(rows), [result.word for row in rows for result in row.results], sum(bool(row.broken) for row in rows)
    )


def _sums(programs: int, words: Sequence[str], broken: int) -> str:
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("same", "documented", "DIFFERS", "skipped"))
    return f"{programs} programs, {len(words)} comparisons: {counts}; {broken} programs broken"


def write(rows: Sequence[Row], condition: str, machine: str, replaces_all: bool = True) -> None:
    """Replace the part of RESULTS.md that is about this condition or, without ``replaces_all``, these rows of it."""
    text = _PAGE.read_text(encoding="utf-8") if _PAGE.exists() else _HEAD
    head, *parts = (part.rstrip() + "\n" for part in re.split(r"(?m)^(?=## )", text))
    sections = {part.splitlines()[0]: part for part in parts}
    title = f"## {condition}"
    table, details = ({}, []) if replaces_all else _read(sections.get(title, ""), {row.program.name for row in rows})
    table |= {row.program.name: _line(row) for row in rows}
    details += [line for row in rows for line in _details(row)]
    sections[title] = _section(title, machine, table, details)
    _PAGE.write_text("\n".join([head, *(sections[name] for name in sorted(sections))]), encoding="utf-8")


def _read(section: str, without: set[str]) -> tuple[dict[str, str], list[str]]:
    """The lines of the table by program, and those below it, of other programs."""
    lines = section.splitlines()
    table = {line.split(" ")[1]: line for line in lines if re.match(r"\| \w+ \|", line)}
    table.pop("program", None)
    details = [line for line in lines if line.startswith("- ")]
    return (
        {name: line for name, line in table.items() if name not in without},
        [line for line in details if _program_of(line) not in without],
    )


def _program_of(line: str) -> str:
    """``- NAME, …`` is a line about a program."""
    return line.removeprefix("- ").partition(",")[0]


def _line(row: Row) -> str:
    by_mode = {result.mode: result.word for result in row.results}
    cells = [by_mode.get(mode, "broken" if row.broken else "") for mode in MODES]
    return f"| {row.program.name} | {_cell(row.program.says)} | {' | '.join(cells)} |"


def _section(title: str, machine: str, table: Mapping[str, str], details: Sequence[str]) -> str:
    cells = [re.split(r"(?<!\\)\|", line)[3:-1] for line in table.values()]
    words = [cell.strip() for row in cells for cell in row if cell.strip() and cell.strip() != "broken"]
    broken = sum(any(cell.strip() == "broken" for cell in row) for row in cells)
    lines = [title, "", machine, "", _sums(len(table), words, broken) + ".", ""]
    lines += [f"| program | what it does | {' | '.join(MODES)} |", "|---|---|" + "---|" * len(MODES)]
    lines += [table[name] for name in sorted(table)]
    return "\n".join([*lines, *([""] if details else []), *sorted(details, key=_program_of)]) + "\n"


def _details(row: Row) -> list[str]:
    lines = [f"- {row.program.name}, broken: {row.broken}"] if row.broken else []
    reasons = {result.mode: result.skipped for result in row.results if result.skipped}
    for reason in dict.fromkeys(reasons.values()):
        modes = ", ".join(mode for mode, said in reasons.items() if said == reason)
        lines.append(f"- {row.program.name}, {modes}, skipped: {reason}")
    found = [(result.mode, one, page) for result in row.results for one, page in result.differences]
    for kind, page in dict.fromkeys((one.kind, page) for _, one, page in found):
        alike = [(mode, one.text) for mode, one, of in found if (one.kind, of) == (kind, page)]
        counts = ", ".join(f"{mode} {count}" for mode, count in Counter(mode for mode, _ in alike).items())
        known = f"docs/{page}" if page else f"NOT DOCUMENTED: `{alike[0][1]}`"
        lines.append(f"- {row.program.name}, {kind} ({counts}): {known}")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").rstrip(".")
