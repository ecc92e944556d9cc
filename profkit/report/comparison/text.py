"""A comparison for a terminal: the verdict, its basis, whether it is fair, and what moved.

Plain text except for the verdict's colour; nothing is wider than ``width``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from profkit.diagnosis.compare.comparison import Comparison, Move, Verdict
from profkit.report.comparison import wording

_COLORS = {Verdict.BETTER: "1;32", Verdict.WORSE: "1;31", Verdict.NO_DIFFERENCE: "1", Verdict.INCONCLUSIVE: "1;33"}
_MIN_WIDTH = 60
"""In less, the figures of a table would leave no room for the names before them."""


def render_text(comparison: Comparison, width: int = 80, color: bool = False) -> str:
    """The report, wrapped at ``width`` columns (at least 60)."""
    width = max(width, _MIN_WIDTH)
    verdict = textwrap.wrap(wording.headline(comparison), width)
    if color:
        verdict = [f"\x1b[{_COLORS[comparison.verdict]}m{line}\x1b[0m" for line in verdict]
    lines = [*verdict, *_bullets(wording.explanation(comparison), width), ""]
    for label, side in (("before", comparison.before), ("after", comparison.after)):
        lines += textwrap.wrap(f"{label:<8}{wording.side_facts(side)}", width, subsequent_indent=" " * 8)
    lines += ["", "What differs besides the program's work"]
    lines += _bullets(wording.difference_notes(comparison), width)
    lines += _table(wording.OPERATORS_MOVED, comparison.operators, width)
    lines += _table(wording.LINES_MOVED, comparison.lines, width)
    if comparison.findings:
        lines += ["", "Findings", *_bullets([wording.finding_note(move) for move in comparison.findings], width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _bullets(notes: Sequence[str], width: int) -> list[str]:
    return [line for note in notes for line in textwrap.wrap(f"- {note}", width, subsequent_indent="  ")]


def _table(title: str, moves: Sequence[Move], width: int) -> list[str]:
    """Names that do not fit are cut: the figures matter more than the end of a name."""
    if not moves:
        return []
    shown = moves[: wording.MOST_MOVES]
    moved = ((wording.move_name(move), *wording.move_cells(move)) for move in shown)
    rows = [("", "before", "after", "change", "calls"), *moved]
    sizes = [max(len(row[i]) for row in rows) for i in range(1, 5)]
    room = min(max(len(row[0]) for row in rows), width - sum(sizes) - 2 * len(sizes))
    lines = ["", title]
    for name, *cells in rows:
        cut = name if len(name) <= room else f"{name[: room - 3].rstrip()}..."
        figures = "".join(f"  {cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))
        lines.append(f"{cut:<{room}}{figures}")
    left = len(moves) - len(shown)
    return [*lines, f"and {left:,} more that moved less"] if left else lines
