"""A comparison for a pull request: GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.diagnosis.compare.comparison import Comparison, Move
from profkit.report.comparison import wording
from profkit.report.markdown import escape, in_code


def render_markdown(comparison: Comparison) -> str:
    """The report as Markdown. All text from a recording is escaped or shown as code."""
    sides = [
        f"{label}: {in_code(wording.side_facts(side))}"
        for label, side in (("before", comparison.before), ("after", comparison.after))
    ]
    blocks = [
        f"## {escape(wording.headline(comparison))}",
        _list([escape(note) for note in wording.explanation(comparison)] + sides),
        "### What differs besides the program's work",
        _list([escape(note) for note in wording.difference_notes(comparison)]),
        *_table(wording.OPERATORS_MOVED, comparison.operators),
        *_table(wording.LINES_MOVED, comparison.lines),
    ]
    if comparison.findings:
        blocks += ["### Findings", _list([escape(wording.finding_note(move)) for move in comparison.findings])]
    return "\n\n".join(blocks) + "\n"


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(title: str, moves: Sequence[Move]) -> list[str]:
    if not moves:
        return []
    rows = ["| | before | after | change | calls |", "| --- | ---: | ---: | ---: | ---: |"]
    rows += [
        f"| {escape(wording.move_name(move))} | {' | '.join(wording.move_cells(move))} |"
        for move in moves[: wording.MOST_MOVES]
    ]
    return [f"### {title}", "\n".join(rows)]
