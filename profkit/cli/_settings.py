"""The options that go before ``[tool.profkit]``: which rules look, and what fails the command."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from profkit.cli._targets import complete_rules

_LEVELS = ["low", "medium", "high"]


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options, and their `Settings`, with those of the project, as ``settings``."""

    @click.option("--select", multiple=True, metavar="RULE", shell_complete=complete_rules,
                  help="Look with this rule alone; may be given again.")  # fmt: skip
    @click.option("--ignore", multiple=True, metavar="RULE", shell_complete=complete_rules,
                  help="Do not look with this rule; may be given again.")  # fmt: skip
    @click.option("--fail-on", type=click.Choice(_LEVELS), metavar="low|medium|high",
                  help="Exit with status 1 when a fault of this severity or above is found.")  # fmt: skip
    @click.option("--fail-on-opportunity", type=click.Choice(_LEVELS), metavar="low|medium|high",
                  help="The same for opportunities, whose remedy changes numerics or structure.")  # fmt: skip
    @wraps(command)
    def with_settings(
        *,
        select: tuple[str, ...],
        ignore: tuple[str, ...],
        fail_on: str | None,
        fail_on_opportunity: str | None,
        **options: Any,
    ) -> None:
        from profkit.cli._memory_reuse import reuse_memory_for_columns

        reuse_memory_for_columns()  # the rules import NumPy, and a process in which that has threads is never forked
        from profkit.settings import read_settings

        settings = read_settings(Path.cwd()).overridden(select, ignore, fail_on, fail_on_opportunity)
        command(settings=settings, **options)

    return with_settings
