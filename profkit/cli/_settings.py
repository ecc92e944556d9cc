"""The options that go before ``[tool.profkit]``: which rules look, and what fails the command."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

_LEVELS = ["low", "medium", "high"]


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options, and their `Settings`, with those of the project, as ``settings``."""

    @click.option("--select", multiple=True, metavar="RULE", help="Look with this rule alone; may be given again.")
    @click.option("--ignore", multiple=True, metavar="RULE", help="Do not look with this rule; may be given again.")
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
        from profkit.settings import read_settings

        settings = read_settings(Path.cwd()).overridden(select, ignore, fail_on, fail_on_opportunity)
        command(settings=settings, **options)

    return with_settings
