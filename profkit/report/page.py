"""A page of plain text: wrapped, indented and, on a terminal, coloured.

Without colour it has no escape codes, and no line is wider than the page. It uses only `textwrap` and click, because a
library that draws tables takes longer to import than most traces take to diagnose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import TextWrapper
from typing import Any

from click import style

Style = dict[str, Any]
"""What `click.style` takes: ``fg``, ``bold`` and so on."""
BOLD: Style = {"bold": True}
DIM: Style = {"dim": True}
ITALIC: Style = {"italic": True}
TITLE: Style = {"bold": True, "underline": True}

_MIN_WIDTH = 40
"""Less leaves no room for a word or two beside a label."""
_LABEL_WIDTH = 12
"""An indent of three, the longest label and a space."""
_GAP = "  "
_CUT = " ..."


class Page:
    """Lines of text, at most ``width`` columns wide (at least 40)."""

    def __init__(self, width: int, color: bool) -> None:
        self.width = max(width, _MIN_WIDTH)
        self._color = color
        self._lines: list[str] = []

    def __str__(self) -> str:
        return "".join(f"{line.rstrip()}\n" for line in self._lines)

    @property
    def room(self) -> int:
        """The columns beside a label."""
        return self.width - _LABEL_WIDTH

    def write(self, text: str = "", look: Style | None = None, indent: int = 0) -> None:
        """A paragraph, or an empty line if there is no text."""
        for line in self._wrap(text, indent) or [""]:
            self._lines.append(" " * indent + self._styled(line, look))

    def write_title(self, title: str) -> None:
        self.write()
        self.write(title, TITLE)

    def write_parts(self, *parts: tuple[str, Style | None]) -> None:
        """A line of parts in different styles; without styles if it has to wrap."""
        text = "".join(part for part, _ in parts)
        if len(text) > self.width:
            self.write(text)
        else:
            self._lines.append("".join(self._styled(part, look) for part, look in parts))

    def write_row(self, label: str, lines: Iterable[str]) -> None:
        """The label in its own column, and the lines wrapped in the column beside it."""
        label = f"   {label}"
        for text in lines:
            for line in self._wrap(text, _LABEL_WIDTH) or [""]:
                self._lines.append(self._styled(f"{label:<{_LABEL_WIDTH}}", DIM) + line)
                label = ""

    def write_bullet(self, text: str, most_lines: int | None = None, indent: int = 0) -> None:
        """Text after a dash, cut at a word after ``most_lines``."""
        for i, line in enumerate(self._wrap(text, indent + 2, most_lines)):
            self._lines.append(" " * indent + ("  " if i else "- ") + line)

    def write_table(self, rows: Sequence[Sequence[str]], right: frozenset[int]) -> None:
        """Columns as wide as their cells, those in ``right`` right-aligned. Only the first column wraps."""
        widths = [max(1, *map(len, cells)) for cells in zip(*rows, strict=True)]
        others = sum(widths[1:]) + len(_GAP) * (len(widths) - 1)
        widths[0] = min(widths[0], max(self.width - others, _MIN_WIDTH // 4))
        for first, *cells in rows:
            padded = (
                f"{cell:>{w}}" if i in right else f"{cell:<{w}}"
                for i, (cell, w) in enumerate(zip(cells, widths[1:], strict=True), 1)
            )
            head, *more = self._wrap(first, self.width - widths[0]) or [""]
            self._lines.append(_GAP.join([f"{head:<{widths[0]}}", *padded]))
            self._lines.extend(more)

    def _wrap(self, text: str, indent: int, most_lines: int | None = None) -> list[str]:
        wrapper = TextWrapper(
            self.width - indent, expand_tabs=False, break_on_hyphens=False, max_lines=most_lines, placeholder=_CUT
        )
        return wrapper.wrap(text)

    def _styled(self, text: str, look: Style | None) -> str:
        return style(text, **look) if self._color and look and text.strip() else text
