"""Where results go: the files of a diagnosis in its directory, the report or a table on stdout, and the page in a
browser."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profkit.cli._settings import working_directory
from profkit.core.printing import writable

if TYPE_CHECKING:
    from profkit.diagnosis.compare.comparison import Comparison
    from profkit.diagnosis.settings import Settings
    from profkit.findings.values import Diagnosis

Shown = TypeVar("Shown", "Diagnosis", "Comparison")
_Command = TypeVar("_Command", bound=Callable[..., Any])
_MAX_COLUMNS = 120
"""Longer lines are hard to read: the eye loses its place on the way back."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the report is delivered: its format on stdout, whether it and the page are to be ``shared`` or without source
    text, and whether the page is opened. ``around`` is a place in the project. ``editor`` is the template of links that
    open a line, None for the usual one."""

    format_name: str
    shared: bool = False
    without_source: bool = False
    opened: bool = False
    around: Path = Path()
    editor: str | None = None
    path_maps: tuple[tuple[str, str], ...] = ()
    """The beginnings of paths in the recording, and what they are here."""
    verbose: bool = False
    """Whether the report says why each rule could not look that did not."""


def write(diagnosis: Diagnosis, directory: Path, wished: Delivery) -> Diagnosis:
    """Write the files of a run, and return the diagnosis as it may be shown."""
    from profkit.report.files import write_reports
    from profkit.report.html.editor import usual_editor

    shown = shown_to_others(diagnosis, wished.shared, wished.without_source, wished.around)
    editor = usual_editor() if wished.editor is None else wished.editor
    write_reports(diagnosis, directory, shown, "" if wished.shared else editor)
    return shown


def sharing_options(command: _Command) -> _Command:
    """Add the options that say what of a report others may see."""
    share = click.option(
        "--share", is_flag=True, help="Leave folders above the project and names of users and hosts out of the report."
    )
    no_source = click.option("--no-source", is_flag=True, help="Leave the program's source text out of the report.")
    return share(no_source(command))


def shown_to_others(shown: Shown, shared: bool, no_source: bool, *around: Path) -> Shown:
    """A diagnosis or a comparison as others may see it. ``around`` are places in the project."""
    if not (shared or no_source):
        return shown
    from profkit.report.sharing.anonymous import names_of_this_machine, project_of, share, without_source

    if shared:
        roots = {project_of(place) for place in (working_directory(), *around) if place is not None}
        shown = share(shown, sorted(roots), names_of_this_machine())
    return without_source(shown) if no_source else shown


def open_page(directory: Path) -> None:
    """Open the page of a run in the default browser, or print its path if nobody would see it."""
    import webbrowser

    from profkit.run.directory import REPORT_FILE

    page = directory / REPORT_FILE
    address = page.absolute().as_uri()
    if not has_screen(os.environ, sys.platform) or not webbrowser.open(address):
        click.echo(f"No browser was opened; the page is {page.absolute()}", err=True)


def has_screen(environment: Mapping[str, str], system: str) -> bool:
    """Whether somebody can see a browser here: not in CI or over SSH, and not on Linux without a display, where
    `webbrowser` may start a text browser in the terminal."""
    if environment.get("CI") or environment.get("SSH_CONNECTION"):
        return False
    is_windowed = system in ("darwin", "win32", "cygwin")
    return is_windowed or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def say_where(directory: Path) -> None:
    """Say where the files of a run are."""
    click.echo(f"Written to {directory}: diagnosis.json, report.html", err=True)


def print_report(diagnosis: Diagnosis, format_name: str, settings: Settings, verbose: bool = False) -> None:
    """Print the report: on a terminal in colour and as wide as it is, otherwise plain at 80 columns. ``settings`` say
    which findings fail the command."""
    from profkit.report import FORMATS, PAGES, render
    from profkit.report.files import rule_pages

    width, color = terminal_settings()
    pages = rule_pages() if PAGES in FORMATS[format_name].settings else {}
    text = render(diagnosis, format_name, width=width, color=color, verbose=verbose, pages=pages, fails=settings.fails)
    say(text.removesuffix("\n"), color=color)


def say(text: str, color: bool | None = None) -> None:
    """Print a text on stdout, whatever encoding stdout has."""
    click.echo(writable(text, sys.stdout.encoding), color=color)


def terminal_settings() -> tuple[int, bool]:
    """Columns to fill, and whether to use colour: 80 and no colour when piped."""
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((80, 24)).columns, _MAX_COLUMNS) if terminal else 80
    return width, terminal and not os.environ.get("NO_COLOR")


def show_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows in aligned columns, with the last column wrapped."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    indent = sum(widths) + 2 * len(widths)
    width = max(shutil.get_terminal_size((80, 24)).columns - indent, 30)
    for row in rows:
        head = "".join(cell.ljust(size + 2) for cell, size in zip(row, widths, strict=False))
        lines = textwrap.wrap(row[-1], width) or [""]
        say(head + f"\n{' ' * indent}".join(lines))
