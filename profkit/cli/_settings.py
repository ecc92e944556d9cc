"""The options that override ``[tool.profkit]``: which rules run, and what fails the command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit.cli._targets import complete_rules

if TYPE_CHECKING:
    from profkit.diagnosis.settings import Settings
    from profkit.findings.values import Diagnosis

FAULTS_FOUND = 1
_LEVELS = ["low", "medium", "high"]
_OPTIONS = (
    click.option(
        "--select",
        multiple=True,
        metavar="RULE",
        shell_complete=complete_rules,
        help="Run only this rule; may be repeated.",
    ),
    click.option(
        "--ignore",
        multiple=True,
        metavar="RULE",
        shell_complete=complete_rules,
        help="Do not run this rule; may be repeated.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(_LEVELS),
        metavar="low|medium|high",
        help="Exit with status 1 if a fault of this severity or higher is found.",
    ),
    click.option(
        "--fail-on-opportunity",
        type=click.Choice(_LEVELS),
        metavar="low|medium|high",
        help="The same for opportunities, whose fixes change numerics or structure.",
    ),
    click.option(
        "--baseline",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Findings that `profkit baseline` noted there fail nothing unless they get worse.",
    ),
)


def working_directory() -> Path | None:
    """The folder that the user is in; None if it no longer exists."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, and pass them, merged with the project's, as ``settings``."""

    @wraps(command)
    def with_settings(
        *,
        select: tuple[str, ...],
        ignore: tuple[str, ...],
        fail_on: str | None,
        fail_on_opportunity: str | None,
        baseline: Path | None,
        **options: Any,
    ) -> None:
        from profkit.core.memory_reuse import collecting_later, reuse_memory_for_columns

        with collecting_later():
            reuse_memory_for_columns()  # the rules import NumPy, whose threads would keep this process from forking
            from profkit.diagnosis.settings import Settings, read_settings

            folder = working_directory()
            project = Settings() if folder is None else read_settings(folder)
            settings = project.overridden(select, ignore, fail_on, fail_on_opportunity, baseline)
        command(settings=settings, **options)

    decorated: Callable[..., None] = with_settings
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def exit_if_failing(diagnoses: Iterable[Diagnosis], settings: Settings) -> None:
    """Exit with status 1 if a finding fails the command."""
    if any(settings.fails(finding) for diagnosis in diagnoses for finding in diagnosis.findings):
        sys.exit(FAULTS_FOUND)
