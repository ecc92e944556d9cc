"""profkit watch"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.cli._output import Delivery, print_report, write
from profkit.cli._recording import fail_as
from profkit.cli._settings import settings_options
from profkit.cli._targets import complete_targets
from profkit.core.errors import UsageError
from profkit.report import FORMATS

if TYPE_CHECKING:
    from profkit.diagnosis.settings import Settings

_FAULTS_FOUND = 1


@click.command("watch")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "module", metavar="MODULE", help="Run this module as a program, like python -m.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The run directory; must not hold another run. Default: traces/TARGET/TIME.",
)
@click.option(
    "--format",
    "format_name",
    default="text",
    show_default=True,
    type=click.Choice([*FORMATS]),
    help="What to print.",
)
@settings_options
def command(
    target: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    output: Path | None,
    format_name: str,
    settings: Settings,
) -> None:
    """Say where a whole run's time goes, from the start of its process to its end.

    TARGET is a script.py; its arguments go after --. No step is recorded and no profiler starts: profkit looks at the
    main thread twenty times a second, which costs less than a hundredth of the time. The account is kept if the program
    is killed. `profkit diagnose` keeps it, too, beside the recorded steps.

    \b
    profkit watch train.py -- --epochs 10
    profkit watch -m package.train
    """
    from profkit.collect.launch.parent import launch_script
    from profkit.diagnosis.pipeline import diagnose_path
    from profkit.run.directory import create_directory, default_directory

    if module is not None:
        arguments = (target, *arguments) if target is not None else arguments
    program = module or target
    if program is None:
        raise UsageError("give a script.py, or a module after -m (see `profkit watch --help`)")
    if module is None and not (program.endswith(".py") and Path(program).is_file()):
        raise UsageError(f"{program}: not a script; profkit watches a script.py or, with -m, a module")
    directory = create_directory(output or default_directory(program))
    status = launch_script(program, list(arguments), directory, module=module is not None, watch_only=True)
    diagnosis = diagnose_path(directory, settings=settings)
    around = Path() if module is not None else Path(program)
    wished = Delivery(format_name, False, False, False, around, settings.editor)
    print_report(write(diagnosis, directory, wished), format_name, settings)
    click.echo(f"Written to {directory}: diagnosis.json, report.html", err=True)
    if status:
        fail_as(status)
    if any(settings.fails(finding) for finding in diagnosis.findings):
        sys.exit(_FAULTS_FOUND)
