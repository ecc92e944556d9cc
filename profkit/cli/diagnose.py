"""profkit diagnose TARGET"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.cli import BAD_INPUT
from profkit.cli._targets import TargetKind, choose_device, classify, find_recording
from profkit.errors import UsageError

if TYPE_CHECKING:
    from profkit.findings import Diagnosis

FORMATS = ("text", "json", "markdown", "html", "sarif")
FAULTS_FOUND = 1
PROGRAM_FAILED = 3


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("target", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "module", metavar="MODULE", help="Run this module as a program, like python -m.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="The run directory itself; must not hold another run. Default: traces/TARGET/TIME.")  # fmt: skip
@click.option("--format", "format_name", default="text", show_default=True,
              type=click.Choice(FORMATS), help="What goes to stdout.")  # fmt: skip
@click.option("--variant", default="pitfall", show_default=True, type=click.Choice(["pitfall", "fix"]),
              help="Which variant of a scenario to run.")  # fmt: skip
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda", "recorded"]),
              help="Where a scenario runs; auto: on a GPU where there is one.")  # fmt: skip
@click.option("--wait", type=click.IntRange(0), default=3, show_default=True, help="Steps timed without a profiler.")
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True,
              help="Steps recorded to learn which line runs what.")  # fmt: skip
@click.option("--active", type=click.IntRange(1), default=4, show_default=True, help="Steps recorded and measured.")
@click.option("--measure", is_flag=True,
              help="Price findings by experiments on this machine, in seconds, where there are any.")  # fmt: skip
@click.option("--fail-on", type=click.Choice(["low", "medium", "high"]), metavar="low|medium|high",
              help="Exit with status 1 when a fault of this severity or above is found.")  # fmt: skip
def command(  # noqa: PLR0913, PLR0917  # click passes each option by its name
    target: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    output: Path | None,
    format_name: str,
    variant: str,
    device: str,
    wait: int,
    warmup: int,
    active: int,
    measure: bool,
    fail_on: str | None,
) -> None:
    """Say what to change in TARGET, on which line, and what it gives back.

    TARGET is a scenario's name (see `profkit scenarios`), a script.py, a trace (*.json, plain, gzip or zstd), an Nsight
    Systems export (*.sqlite) or a run directory. Arguments for a script stand after --. diagnosis.json and report.html
    are written to the run directory; the report goes to stdout.

    \b
    profkit diagnose loss-list
    profkit diagnose train.py -- --epochs 1
    profkit diagnose -m package.train
    profkit diagnose trace.json.gz
    """
    plan = {"wait": wait, "warmup": warmup, "active": active}
    program_status = 0
    if module is not None:
        given = (target, *arguments) if target is not None else arguments
        directory, program_status = _run_script(module, given, output, plan, as_module=True)
    elif target is None:
        raise UsageError("name a scenario, a script.py, a trace or a directory (see `profkit diagnose --help`)")
    else:
        kind = classify(target)
        if arguments and kind is not TargetKind.SCRIPT:
            raise UsageError(f"{arguments[0]}: only a script or a module takes arguments")
        if kind is TargetKind.SCRIPT:
            directory, program_status = _run_script(target, arguments, output, plan, as_module=False)
        elif kind is TargetKind.SCENARIO:
            return _finish(*_run_scenario(target, variant, device, output, plan, measure), format_name, fail_on)
        else:
            return _finish(*_read(Path(target), output, measure), format_name, fail_on)
    _require_trace(directory, module or str(target), program_status)
    return _finish(_diagnose(directory, measure), directory, format_name, fail_on, program_status)


def _diagnose(path: Path, measure: bool) -> Diagnosis:
    from profkit import measuring
    from profkit.diagnosing import diagnose_path

    return diagnose_path(path, measuring.measure if measure else None)


def _require_trace(directory: Path, program: str, status: int) -> None:
    """End with one line where the program left nothing to diagnose."""
    from profkit.run import find_trace, load_run

    if find_trace(directory) is None:
        reasons = "; ".join(load_run(directory).notes) or "it ran no operator of PyTorch"
        click.echo(f"profkit: {program}: nothing was recorded: {reasons}", err=True)
        sys.exit(PROGRAM_FAILED if status else BAD_INPUT)


def _read(path: Path, output: Path | None, measure: bool) -> tuple[Diagnosis, Path]:
    """Diagnose first, so that nothing is left behind for a file that cannot be read."""
    from profkit.cli._numpy import import_numpy
    from profkit.run import create_directory, default_directory

    import_numpy()
    diagnosis = _diagnose(path, measure)
    in_place = path.is_dir() and output is None
    directory = path if in_place else create_directory(output or default_directory(str(path)))
    return diagnosis, directory


def _run_script(
    target: str, arguments: tuple[str, ...], output: Path | None, plan: dict[str, int], as_module: bool
) -> tuple[Path, int]:
    from profkit.collect.launch import launch_script
    from profkit.run import create_directory, default_directory

    directory = create_directory(output or default_directory(target))
    status = launch_script(target, list(arguments), directory, module=as_module, **plan)
    return directory, status


def _run_scenario(
    name: str, variant: str, device: str, output: Path | None, plan: dict[str, int], measure: bool
) -> tuple[Diagnosis, Path]:
    from profkit.catalogue import find_scenario
    from profkit.run import create_directory, default_directory

    scenario = find_scenario(name)
    chosen = choose_device(device, scenario.needs_gpu)
    if chosen == "recorded":
        recording = find_recording(name, variant)
        click.echo(f"profkit: {name} needs a GPU: showing a recording made elsewhere ({recording})", err=True)
        return _diagnose(recording, measure), create_directory(output or default_directory(name))
    from profkit.cli._progress import Progress
    from profkit.collect.scenario import run_scenario

    directory = create_directory(output or default_directory(name))
    with Progress() as progress:
        run_scenario(scenario.path, variant, chosen, directory, on_progress=progress.show, **plan)
    return _diagnose(directory, measure), directory


def _finish(
    diagnosis: Diagnosis, directory: Path, format_name: str, fail_on: str | None, program_status: int = 0
) -> None:
    """Write the two files, print the report, and exit with the status that the outcome asks for."""
    from profkit.cli._output import print_report
    from profkit.findings import Severity
    from profkit.report.files import write_reports

    write_reports(diagnosis, directory)
    print_report(diagnosis, format_name)
    click.echo(f"Written to {directory}: diagnosis.json, report.html", err=True)
    if program_status != 0:
        click.echo(f"profkit: the program itself failed with exit status {program_status}", err=True)
        sys.exit(PROGRAM_FAILED)
    if fail_on and diagnosis.worst is not None and diagnosis.worst.rank <= Severity(fail_on).rank:
        sys.exit(FAULTS_FOUND)


command.name = "diagnose"
