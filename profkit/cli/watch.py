"""profkit watch"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.cli._output import Delivery, print_report, say_where, write
from profkit.cli._recording import arguments_of_module, fail_as, program_arguments, run_directory_option
from profkit.cli._settings import exit_if_failing, settings_options
from profkit.core.errors import UsageError
from profkit.report import FORMATS

if TYPE_CHECKING:
    from profkit.diagnosis.settings import Settings


@click.command("watch")
@program_arguments
@run_directory_option
@click.option(
    "--format",
    "format_name",
    default="text",
    show_default=True,
    type=click.Choice([*FORMATS]),
    help="What to print.",
)
@click.option("--live", is_flag=True, help="Every 5 s, tell what the program does, if stderr is a terminal.")
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Every 5 s, write figures to this file, in OpenMetrics' text format.",
)
@settings_options
def command(
    target: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    output: Path | None,
    format_name: str,
    live: bool,
    metrics: Path | None,
    settings: Settings,
) -> None:
    """Say where a whole run's time goes, from the start of its process to its end.

    TARGET is a script.py; its arguments go after --. profkit looks at the main thread ten times a second or more,
    which costs less than a hundredth of the time. The account is kept if the program is killed. `profkit diagnose`
    keeps it, too, beside the recorded steps.

    No profiler starts unless something changes: if steps take twice as long, if half as many come, or if memory grows,
    four steps are recorded, once. The report tells why, what that cost, and which lines got longer.

    \b
    profkit watch train.py -- --epochs 10
    profkit watch -m package.train
    profkit watch train.py --live --metrics run.prom
    """
    from profkit.collect.launch.parent import launch_script
    from profkit.diagnosis.pipeline import diagnose_path
    from profkit.run.directory import create_directory, default_directory

    if module is not None:
        arguments = arguments_of_module(target, arguments)
    program = module or target
    if program is None:
        raise UsageError("give a script.py, or a module after -m (see `profkit watch --help`)")
    if module is None and not (program.endswith(".py") and Path(program).is_file()):
        raise UsageError(f"{program}: not a script; profkit watches a script.py or, with -m, a module")
    shown: dict[str, str | bool] = {"live": live, "metrics": _checked(metrics)}
    directory = create_directory(output or default_directory(program))
    status = launch_script(program, list(arguments), directory, module=module is not None, watch_only=True, **shown)
    diagnosis = diagnose_path(directory, settings=settings)
    wished = Delivery(format_name, False, False, False, Path("" if module else program), settings.editor)
    print_report(write(diagnosis, directory, wished), format_name, settings)
    say_where(directory)
    if status:
        fail_as(status)
    exit_if_failing([diagnosis], settings)


def _checked(metrics: Path | None) -> str | bool:
    """The file for figures as the program is told it, which may change its directory; False if none is wished."""
    from profkit.run.directory import fixed

    if metrics is None:
        return False
    if metrics.is_symlink() or (metrics.exists() and not metrics.is_file()):
        raise UsageError(f"{metrics}: not a plain file; --metrics replaces the file as a whole")
    if not metrics.absolute().parent.is_dir():
        raise UsageError(f"{metrics.parent}: no such directory for --metrics")
    return str(fixed(metrics))
