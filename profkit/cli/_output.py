"""Where a diagnosis goes: two files in the run directory, one report on stdout."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.errors import RunDirectoryError

if TYPE_CHECKING:
    from profkit.findings import Diagnosis

_MAX_COLUMNS = 120


def write_reports(diagnosis: Diagnosis, directory: Path) -> None:
    """Write ``diagnosis.json`` and ``report.html``; raises `RunDirectoryError` where that fails."""
    from profkit.report import render
    from profkit.run import DIAGNOSIS_FILE, REPORT_FILE

    try:
        (directory / DIAGNOSIS_FILE).write_text(render(diagnosis, "json"), encoding="utf-8")
        (directory / REPORT_FILE).write_text(render(diagnosis, "html", pages=_pages()), encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(directory, f"cannot be written: {error.strerror or error}") from error


def print_report(diagnosis: Diagnosis, format_name: str) -> None:
    """Print the report: as wide as the terminal and coloured on one, plain at 80 columns when piped."""
    from profkit.report import render

    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((80, 24)).columns, _MAX_COLUMNS) if terminal else 80
    color = terminal and not os.environ.get("NO_COLOR")
    pages = _pages() if format_name in ("html", "sarif") else {}
    text = render(diagnosis, format_name, width=width, color=color, pages=pages)
    click.echo(text.removesuffix("\n"), color=color)


def _pages() -> dict[str, str]:
    from profkit.rules import all_rules

    return {rule.name: rule.page for rule in all_rules().values()}
