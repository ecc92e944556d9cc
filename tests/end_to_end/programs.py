"""Ordinary programs, each judged by one diagnosis: is the fault found first, on its line, and nothing else?

The first line of a program is a comment with its kind; ``# expect: RULE`` marks the line of its fault. Where two lines
are as good an answer, both are marked. A program
without a mark has nothing wrong, and ``# expect: no opportunities`` means that there is nothing to gain either.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from tests.end_to_end.running import Outcome, record_program
from tests.end_to_end.running import judge as judge_kept
from tests.recordings import Recordings, statements

DIRECTORY = Path(__file__).parents[1] / "programs"
_KIND = re.compile(r"# kind: (.+)\n")
_MARK = re.compile(r"# expect: (\S+)$")
_SPOTLESS = "\n# expect: no opportunities\n"
_GRAVE = ("high", "medium")


@dataclass(frozen=True)
class Program:
    """A program and what its comments say. ``missing`` are imported libraries that this machine lacks."""

    path: Path
    kind: str
    marks: tuple[tuple[int, str], ...]
    missing: tuple[str, ...]
    spotless: bool = False
    """It says that it has no opportunities: they are false alarms there, as faults are everywhere."""
    alone: bool = False
    """It runs in a process of its own, as users run it."""

    @property
    def expected(self) -> tuple[int, str] | None:
        return self.marks[0] if self.marks else None


@dataclass(frozen=True)
class Verdict:
    """A row of the table. ``rank`` counts among findings of the same kind, faults or opportunities; ``line`` says
    whether the finding is on the marked line; ``false_alarms`` are faults of medium or high severity by other rules,
    and opportunities where the program says that it has none."""

    program: str
    kind: str
    expected: str
    found: bool | None
    rank: int | None
    line: bool | None
    false_alarms: tuple[str, ...]
    seconds: float

    @property
    def as_it_should_be(self) -> bool:
        if self.found is None:
            return not self.false_alarms
        return bool(self.found and self.rank == 1 and self.line)


@functools.cache
def all_programs() -> list[Program]:
    return [_read(path) for path in sorted(DIRECTORY.glob("[!_]*.py"))]


def _read(path: Path) -> Program:
    text = path.read_text(encoding="utf-8")
    kind = _KIND.match(text)
    assert kind is not None, f"{path.name} does not begin with its kind"
    lines = enumerate(text.splitlines(), 1)
    marks = tuple((number, match[1]) for number, line in lines if (match := _MARK.search(line)))
    imported = _imported(text)
    missing = tuple(name for name in sorted(imported) if importlib.util.find_spec(name) is None)
    alone = "compiled" in kind[1] or "gc" in imported
    return Program(path, kind[1], marks, missing, _SPOTLESS in text, alone)


def _imported(text: str) -> set[str]:
    """The top-level modules that a program imports."""
    names = set()
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def judge(program: Program, recordings: Recordings) -> tuple[Verdict, Outcome]:
    """Diagnose the recording of it; a failure is a false alarm that finds nothing.

    What is compiled runs alone: forks of a process that has PyTorch imported already crashed in the compiler now and
    then. So does what runs the collector of garbage, which finds less in a fork.
    """
    kept = record_program(recordings, str(program.path), reads=[program.path], alone=program.alone)
    begun = time.monotonic()
    outcome = judge_kept(kept)
    seconds = kept.seconds + time.monotonic() - begun
    verdict = give_verdict(program, outcome.diagnosis.get("findings", ()), seconds)
    if outcome.status != 0:
        verdict = replace(
            verdict,
            found=None if verdict.found is None else False,
            false_alarms=(f"exit-status-{outcome.status}", *verdict.false_alarms),
        )
    return verdict, outcome


def give_verdict(program: Program, findings: Sequence[dict[str, Any]], seconds: float) -> Verdict:
    """How well the ranked findings match the known fault of a program."""
    _, rule = program.expected or (0, "")
    kinds = ("fault", "opportunity") if program.spotless else ("fault",)
    alarms = [one for one in findings if one["kind"] in kinds and one["severity"] in _GRAVE and one["rule"] != rule]
    names = tuple(_name(alarm) for alarm in alarms)
    if not rule:
        return Verdict(program.path.stem, program.kind, "", None, None, None, names, seconds)
    of_rule = [one for one in findings if one["rule"] == rule]
    of_rule.sort(key=lambda one: not _is_at(one, program))  # it may tell of another line, as an opportunity
    found = next(iter(of_rule), None)
    if found is None:
        return Verdict(program.path.stem, program.kind, rule, False, None, None, names, seconds)
    rank = 1 + [one for one in findings if one["kind"] == found["kind"]].index(found)
    exact = _is_at(found, program)
    return Verdict(program.path.stem, program.kind, rule, True, rank, exact, names, seconds)


def _is_at(finding: dict[str, Any], program: Program) -> bool:
    where = finding["location"] or {"file": "", "line": 0}
    return Path(where["file"]).name == program.path.name and (where["line"], finding["rule"]) in program.marks


def _name(finding: dict[str, Any]) -> str:
    where = finding["location"]
    return finding["rule"] + (f":{where['line']}" if where else "")


def render(verdicts: Iterable[Verdict]) -> str:
    """The table, and below it how many of each kind are right."""
    verdicts = list(verdicts)
    header = ("program", "kind", "rule expected", "found", "rank", "line", "false alarms", "seconds")
    rows = [header, *(_cells(verdict) for verdict in verdicts)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    faulty = [one for one in verdicts if one.found is not None]
    clean = [one for one in verdicts if one.found is None]
    summary = (
        f"{len(faulty)} faulty: {sum(bool(one.found) for one in faulty)} found, "
        f"{sum(one.rank == 1 for one in faulty)} at rank 1, {sum(bool(one.line) for one in faulty)} on the exact line; "
        f"{len(clean)} clean: {sum(not one.false_alarms for one in clean)} without a fault of medium or high severity"
    )
    return "\n".join([*lines, "", summary])


def _cells(verdict: Verdict) -> tuple[str, ...]:
    program, kind, expected, found, rank, line, alarms, seconds = astuple(verdict)
    answers = [{None: "", True: "yes", False: "NO"}[answer] for answer in (found, line)]
    return (
        program,
        kind,
        expected or "(clean)",
        answers[0],
        str(rank or ""),
        answers[1],
        " ".join(alarms) or "none",
        f"{seconds:.1f}",
    )
