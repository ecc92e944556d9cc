"""Several ranks: running a program in several processes (`--nproc`), and diagnosing recordings as one launch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit.cli import BAD_INPUT
from profkit.cli._recording import PROGRAM_FAILED, RecordedProgram, run_program
from profkit.core.errors import RunDirectoryError, UsageError

if TYPE_CHECKING:
    from profkit.derive.facts import Facts
    from profkit.diagnosis.pipeline import Measure
    from profkit.diagnosis.settings import Settings
    from profkit.findings.values import Diagnosis
    from profkit.trace.events import Rows

_LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The recording at ``path``, its diagnosis, and the events behind each finding. Path and facts are None if another
    machine judged it."""

    path: Path | None
    facts: Facts | None
    diagnosis: Diagnosis
    rows: Sequence[Rows]


def run(
    target: str, arguments: tuple[str, ...], output: Path | None, module: bool, *, nproc: int | None, **wishes: Any
) -> RecordedProgram:
    """Record a script or module in one process, or in ``nproc``. Ends profkit with one line if nothing was recorded."""
    if nproc is None:
        return run_program(target, arguments, output, module, **wishes)
    return _run_ranks(nproc, target, arguments, output, module, wishes)


def names_recording(target: str) -> bool:
    """Whether the target is the address of a single file, judging by its name."""
    from profkit.cli._targets import TRACE_ENDINGS
    from profkit.diagnosis.launch.remote import is_url

    return is_url(target) and target.endswith(TRACE_ENDINGS)


def holds_launch(target: str) -> bool:
    """Whether the target is read as several ranks: a folder of recordings, or a place on another file system."""
    from profkit.diagnosis.launch.finding import find_ranks
    from profkit.diagnosis.launch.remote import path_of

    path = path_of(target)
    return path is None or (path.is_dir() and bool(find_ranks(path)))


def launch_of(run_directory: Path) -> Path:
    """The launch that a run directory belongs to, or the run directory itself."""
    from profkit.diagnosis.launch import finding

    return finding.launch_of(run_directory) or run_directory


def choose_measure(wanted: bool) -> Measure | None:
    """The function that runs the experiments of ``--measure``."""
    if not wanted:
        return None
    from profkit.diagnosis.experiments import measure

    return measure


def diagnose_launch(
    target: str, on: str | None, output: Path | None, measure: bool, settings: Settings
) -> tuple[Diagnosed, Path]:
    """The diagnosis of the ranks together, and the directory for the reports: the launch's own unless ``output`` names
    another."""
    from profkit.core.memory_reuse import stop_collecting_garbage

    stop_collecting_garbage()
    from profkit.cli._progress import ReadingBar
    from profkit.diagnosis.launch.launching import diagnose_ranks
    from profkit.diagnosis.launch.remote import path_of
    from profkit.run.directory import REPORTS, check_replaceable, create_directory, default_directory, refuse_other_run

    path = path_of(target)
    in_place = path is not None and path.is_dir() and output is None
    if path is not None and in_place:
        check_replaceable(path, REPORTS)
    elif output is not None:
        refuse_other_run(output)
    with ReadingBar(path or Path(target.rstrip("/"))) as bar:
        found = diagnose_ranks(target, on, choose_measure(measure), settings, bar.count)
    directory = path if path is not None and in_place else create_directory(output or default_directory(target))
    return Diagnosed(found.path, found.facts, found.diagnosis, found.rows), directory


def _run_ranks(
    processes: int,
    target: str,
    arguments: tuple[str, ...],
    output: Path | None,
    module: bool,
    wishes: dict[str, Any],
) -> RecordedProgram:
    from profkit.collect.launch.parent import launch_ranks
    from profkit.run.directory import create_directory, find_trace

    if wishes["stop_after_recording"]:
        raise UsageError("--stop-after-recording: with --nproc one rank would leave the others waiting")
    directory = _new_directory(target) if output is None else create_directory(output)
    status = launch_ranks(processes, target, arguments, directory, module=module, **wishes)
    ranks = [folder for folder in _folders_of(directory) if find_trace(folder) is not None]
    if not ranks:
        click.echo(f"profkit: {target}: no rank was recorded in {directory}", err=True)
        sys.exit(PROGRAM_FAILED if status else BAD_INPUT)
    return RecordedProgram((directory, *ranks), status, is_launch=True)


def _new_directory(target: str) -> Path:
    """The first of ``traces/<target>/launch``, ``launch-2`` … that does not exist."""
    from profkit.run.directory import create_directory, directory_of_target, numbered

    first = directory_of_target(target) / _LAUNCH
    for path in numbered(first):
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunDirectoryError(path, f"cannot be written: {error.strerror or error}") from error
        return create_directory(path)
    raise AssertionError  # the numbers never end


def _folders_of(directory: Path) -> list[Path]:
    """The ranks' folders, in the order of the ranks."""
    from profkit.run.directory import load_run

    folders = [path for path in directory.iterdir() if path.is_dir()]
    identities = [(load_run(path).identity, path) for path in folders]
    return [path for _, path in sorted((who.rank, path) for who, path in identities if who is not None)]
