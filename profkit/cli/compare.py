"""profkit compare BEFORE AFTER"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from profkit.cli._output import say, sharing_options, shown_to_others, terminal_settings
from profkit.cli._targets import complete_recordings
from profkit.core.errors import UsageError
from profkit.report import COMPARISON_FORMATS

REGRESSION_FOUND = 1


@click.command("compare")
@click.argument("before", type=click.Path(path_type=Path, readable=False), shell_complete=complete_recordings)
@click.argument("after", type=click.Path(path_type=Path, readable=False), shell_complete=complete_recordings)
@click.option(
    "--format",
    "format_name",
    default="text",
    show_default=True,
    type=click.Choice(list(COMPARISON_FORMATS)),
    help="What goes to stdout.",
)
@sharing_options
@click.option(
    "--fail-on-regression",
    "threshold",
    metavar="PERCENT",
    help="Exit with status 1 if the step is certainly longer, by about PERCENT or more.",
)
@click.option("--force", is_flag=True, help="Compare recordings of different programs too.")
def command(
    before: Path, after: Path, format_name: str, share: bool, no_source: bool, threshold: str | None, force: bool
) -> None:
    """Say whether AFTER is better or worse than BEFORE, and what moved.

    Each is a run directory, a trace, or a directory of several run directories. Several runs of each, recorded in
    turns, show smaller changes. Noise is never reported as a change: if the recordings are too few or too noisy, the
    verdict is "inconclusive".

    \b
    profkit compare traces/train/20260101-101500 traces/train/20260101-103000
    profkit compare traces/before traces/after --fail-on-regression 5%
    """
    from profkit.core.memory_reuse import reuse_memory_for_columns, reuse_memory_for_rules

    reuse_memory_for_columns()
    reuse_memory_for_rules()  # each recording is judged before the next is read
    from profkit.diagnosis.compare import compare_paths
    from profkit.report import render_comparison

    least = None if threshold is None else parse_percent(threshold)
    comparison = compare_paths(before, after, force)
    width, color = terminal_settings()
    shown = shown_to_others(comparison, share, no_source, before, after)
    text = render_comparison(shown, format_name, width=width, color=color)
    say(text.removesuffix("\n"), color=color)
    if least is not None and comparison.is_regression(least):
        sys.exit(REGRESSION_FOUND)


def parse_percent(text: str) -> float:
    """``'5%'`` or ``'5'`` → ``0.05``. Raises `UsageError` for anything but a percentage of zero or more."""
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent < float("inf"):
        raise UsageError(f"--fail-on-regression {text}: give a percentage such as 5%")
    return percent / 100
