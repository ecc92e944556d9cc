"""Printing a diagnosis on stdout."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from profkit.findings import Diagnosis

_MAX_COLUMNS = 120


def print_report(diagnosis: Diagnosis, format_name: str) -> None:
    """Print the report: as wide as the terminal and coloured on one, plain at 80 columns when piped."""
    from profkit.report import render
    from profkit.report.files import rule_pages

    width, color = terminal_settings()
    pages = rule_pages() if format_name in ("html", "sarif") else {}
    text = render(diagnosis, format_name, width=width, color=color, pages=pages)
    click.echo(text.removesuffix("\n"), color=color)


def terminal_settings() -> tuple[int, bool]:
    """Columns to fill, and whether to use colour: 80 and no colour when piped."""
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((80, 24)).columns, _MAX_COLUMNS) if terminal else 80
    return width, terminal and not os.environ.get("NO_COLOR")
