"""profkit diagnose TARGET"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit.cli._recording import (
    PROGRAMS_ONLY,
    RecordedProgram,
    fail_as,
    recording_options,
    refuse_wishes,
    run_program,
)
from profkit.cli._settings import settings_options
from profkit.cli._targets import TargetKind, choose_device, classify, find_recording, latest_run
from profkit.errors import UsageError

if TYPE_CHECKING:
    from profkit.diagnosing import Measure
    from profkit.findings import Diagnosis
    from profkit.settings import Settings

FORMATS = ("text", "json", "markdown", "html", "sarif", "github", "memory-timeline")
FAULTS_FOUND = 1


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
              help="Where a scenario runs; auto: on a GPU if there is one.")  # fmt: skip
@recording_options
@click.option("--measure", is_flag=True,
              help="Price findings by experiments on this machine where possible; takes seconds.")  # fmt: skip
@settings_options
def command(  # noqa: PLR0913, PLR0917  # click passes each option by its name
    target: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    output: Path | None,
    format_name: str,
    variant: str,
    device: str,
    measure: bool,
    settings: Settings,
    **wishes: Any,
) -> None:
    """Say what to change in TARGET, on which line, and what it gives back.

    TARGET is a scenario's name (see `profkit scenarios`), a script.py, a trace (*.json, plain, gzip or zstd), an Nsight
    Systems export (*.sqlite), a GPU's memory snapshot (*.pickle) or a run directory. Arguments for a script stand after
    --. diagnosis.json and report.html are written to the run directory; the report goes to stdout.

    \b
    profkit diagnose loss-list
    profkit diagnose train.py -- --epochs 1
    profkit diagnose -m package.train
    profkit diagnose trace.json.gz
    """
    if module is not None:
        given = (target, *arguments) if target is not None else arguments
        return _finish_program(run_program(module, given, output, True, **wishes), measure, format_name, settings)
    if target is None:
        raise UsageError("name a scenario, a script.py, a trace or a directory (see `profkit diagnose --help`)")
    kind = classify(target)
    if kind is TargetKind.SCRIPT:
        return _finish_program(run_program(target, arguments, output, False, **wishes), measure, format_name, settings)
    if arguments:
        raise UsageError(f"{arguments[0]}: only a script or a module takes arguments")
    refuse_wishes(f"a {kind.value}", **{name: wishes.pop(name) for name in PROGRAMS_ONLY})
    if kind is TargetKind.SCENARIO:
        found = _run_scenario(target, variant, device, output, wishes, measure, settings)
        return _finish(*found, format_name, settings)
    path = latest_run(Path(target))
    if path != Path(target):
        click.echo(f"profkit: {target}: the latest run in it, {path}", err=True)
    return _finish(*_read(path, output, measure, settings), format_name, settings)


def _diagnose(path: Path, measure: bool, settings: Settings) -> Diagnosis:
    from profkit.diagnosing import diagnose_path

    return diagnose_path(path, _measure() if measure else None, settings)


def _measure() -> Measure:
    from profkit import measuring

    return measuring.measure


def _read(path: Path, output: Path | None, measure: bool, settings: Settings) -> tuple[Diagnosis, Path]:
    """Diagnose before a directory is made, so that an unreadable file leaves nothing behind; but check first that the
    result can be written, as reading may take minutes."""
    from profkit.cli._memory_reuse import reuse_memory_for_columns, reuse_memory_for_rules, stop_collecting_garbage
    from profkit.cli._reading import ReadingBar

    stop_collecting_garbage()
    reuse_memory_for_columns()
    from profkit.diagnosing import diagnose, read_facts
    from profkit.run import create_directory, default_directory, refuse_other_run

    if output is not None:
        refuse_other_run(output)
    with ReadingBar(path) as bar:
        facts = read_facts(path, bar.show)
    reuse_memory_for_rules()
    diagnosis = diagnose(facts, _measure() if measure else None, settings)
    in_place = path.is_dir() and output is None
    directory = path if in_place else create_directory(output or default_directory(str(path)))
    return diagnosis, directory


def _run_scenario(
    name: str,
    variant: str,
    device: str,
    output: Path | None,
    plan: dict[str, int],
    measure: bool,
    settings: Settings,
) -> tuple[Diagnosis, Path]:
    from profkit.catalogue import find_scenario
    from profkit.run import create_directory, default_directory

    scenario = find_scenario(name)
    chosen = choose_device(device, scenario.needs_gpu, scenario.gpus)
    if chosen == "recorded":
        recording = find_recording(name, variant)
        needing = f"{name} needs a GPU" if scenario.needs_gpu else name
        click.echo(f"profkit: {needing}: showing a recording made elsewhere ({recording})", err=True)
        return _diagnose(recording, measure, settings), create_directory(output or default_directory(name))
    from profkit.cli._progress import Progress
    from profkit.collect.launch.scenario import run_scenario

    directory = create_directory(output or default_directory(name))
    with Progress() as progress:
        run_scenario(scenario.path, variant, chosen, directory, on_progress=progress.show, **plan)
    return _diagnose(directory, measure, settings), directory


def _finish_program(recorded: RecordedProgram, measure: bool, format_name: str, settings: Settings) -> None:
    """Diagnose a program, and each window that was asked for while it ran; the report is the first recording's."""
    first, *windows = recorded.directories
    later = (_write(_diagnose(window, measure, settings), window) for window in windows)
    diagnoses = [_diagnose(first, measure, settings), *later]
    _report(diagnoses[0], first, format_name)
    if recorded.status:
        fail_as(recorded.status, recorded.remedy)
    _exit(diagnoses, settings)


def _finish(diagnosis: Diagnosis, directory: Path, format_name: str, settings: Settings) -> None:
    """Write the two files, print the report, and exit with the status of the outcome."""
    _report(diagnosis, directory, format_name)
    _exit([diagnosis], settings)


def _report(diagnosis: Diagnosis, directory: Path, format_name: str) -> None:
    from profkit.cli._output import print_report
    from profkit.report.files import write_reports

    write_reports(diagnosis, directory)
    print_report(diagnosis, format_name)
    _say_where(directory)


def _write(diagnosis: Diagnosis, directory: Path) -> Diagnosis:
    from profkit.report.files import write_reports

    write_reports(diagnosis, directory)
    _say_where(directory)
    return diagnosis


def _say_where(directory: Path) -> None:
    click.echo(f"Written to {directory}: diagnosis.json, report.html", err=True)


def _exit(diagnoses: Sequence[Diagnosis], settings: Settings) -> None:
    if any(reaches(diagnosis, settings) for diagnosis in diagnoses):
        sys.exit(FAULTS_FOUND)


def reaches(diagnosis: Diagnosis, settings: Settings) -> bool:
    """Whether a finding is as severe as the settings say for its kind."""
    from profkit.findings import Kind, Severity

    least = {Kind.FAULT: settings.fail_on, Kind.OPPORTUNITY: settings.fail_on_opportunity}
    chosen = ((one.severity, least[one.kind]) for one in diagnosis.findings)
    return any(level is not None and severity.rank <= Severity(level).rank for severity, level in chosen)


command.name = "diagnose"
