"""Columns of text, with the last one wrapped to the terminal."""

from __future__ import annotations

import shutil
import textwrap

from profkit.cli._output import say


def show_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows in aligned columns, with the last column wrapped."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    indent = sum(widths) + 2 * len(widths)
    width = max(shutil.get_terminal_size((80, 24)).columns - indent, 30)
    for row in rows:
        head = "".join(cell.ljust(size + 2) for cell, size in zip(row, widths, strict=False))
        lines = textwrap.wrap(row[-1], width) or [""]
        say(head + f"\n{' ' * indent}".join(lines))
