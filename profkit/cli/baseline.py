"""profkit baseline RUN…"""

from __future__ import annotations

from pathlib import Path

import click

from profkit.cli._targets import complete_recordings


@click.command("baseline")
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=click.Path(path_type=Path),
    shell_complete=complete_recordings,
)
@click.option(
    "--output",
    default="profkit-baseline.json",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write; one that exists is replaced.",
)
def command(runs: tuple[Path, ...], output: Path) -> None:
    """Note the findings of RUN as known, so that they fail no check.

    RUN is a directory that `profkit diagnose` wrote, or its diagnosis.json. `profkit diagnose --baseline FILE
    --fail-on high` then fails for new findings, and for known ones that got worse.

    \b
    profkit diagnose train.py --output traces/known
    profkit baseline traces/known
    profkit diagnose train.py --baseline profkit-baseline.json --fail-on low
    """
    import profkit
    from profkit.core.units import format_count
    from profkit.diagnosis.known import write_baseline

    findings = [finding for run in runs for finding in profkit.load(run).findings]
    count = write_baseline(output, findings)
    click.echo(f"{format_count(count, 'known finding')} in {output}")
