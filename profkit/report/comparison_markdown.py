"""A comparison for a pull request: GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.comparing.values import Comparison, Move
from profkit.report.comparison_wording import (
    MOST_MOVES,
    difference_note,
    explanation,
    finding_note,
    headline,
    move_cells,
    move_name,
    side_facts,
)
from profkit.report.markdown import escape, in_code


def render_markdown(comparison: Comparison) -> str:
    """The report as Markdown. Everything that comes from a recording is escaped or set as code."""
    sides = [f"before: {in_code(side_facts(comparison.before))}", f"after: {in_code(side_facts(comparison.after))}"]
    differences = [escape(difference_note(difference)) for difference in comparison.differences]
    blocks = [
        f"## {escape(headline(comparison))}",
        _list([escape(note) for note in explanation(comparison)] + sides),
        "### What differs besides the program's work",
        _list(differences or ["nothing that the recordings show"]),
        *_table("Operators that moved, per recorded step", comparison.operators),
        *_table("Lines that moved, per recorded step", comparison.lines),
    ]
    if comparison.findings:
        blocks += ["### Findings", _list([escape(finding_note(move)) for move in comparison.findings])]
    return "\n\n".join(blocks) + "\n"


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(title: str, moves: Sequence[Move]) -> list[str]:
    if not moves:
        return []
    rows = ["| | before | after | change | calls |", "| --- | ---: | ---: | ---: | ---: |"]
    rows += [f"| {escape(move_name(move))} | {' | '.join(move_cells(move))} |" for move in moves[:MOST_MOVES]]
    return [f"### {title}", "\n".join(rows)]
