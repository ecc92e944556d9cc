"""What is wrong with the program, by a recording of its copy."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from profkit.core.errors import UsageError
from profkit.diagnosis.experiments import measure
from profkit.diagnosis.fixing.proving import ProgramFailed
from profkit.diagnosis.fixing.turns import Run, Seen, Stage
from profkit.diagnosis.pipeline import diagnose_path
from profkit.diagnosis.settings import Settings
from profkit.findings.values import Diagnosis, Finding, Location
from profkit.run.directory import find_trace, load_run


def diagnose_copy(
    stage: Stage, settings: Settings, changed: Mapping[Path, bytes], most_s: float, measured: bool = False
) -> Diagnosis:
    """Record the program in a copy with these files changed, and diagnose it; places are in the original files. What no
    recording can price, such as another layout, is tried out if ``measured``: else it would be left out. Raises
    `ProgramFailed`, and `UsageError` if nothing was recorded."""
    directory = Path(tempfile.mkdtemp(prefix="recording-", dir=stage.folder))
    status, errors = stage.record(directory, changed, most_s)
    if status:
        raise ProgramFailed(Run(status, "", errors, Seen(), {}, {}))
    if find_trace(directory) is None:
        reasons = "; ".join(load_run(directory).notes) or "it ran no PyTorch operator"
        raise UsageError(f"{stage.program.target}: nothing was recorded: {reasons}")
    return at_home(stage, diagnose_path(directory, measure if measured else None, settings))


def program_of(path: Path) -> tuple[tuple[str, ...], bool]:
    """What a run directory is a recording of: the target with its arguments, and whether that is a module. Raises
    `UsageError` for a recording of anything else."""
    command = load_run(path).command
    is_module = command[1:2] == ("-m",)
    given = command[2:] if is_module else command[1:]
    if command[:1] != ("python",) or not given:
        raise UsageError(f"{path}: does not say which program it is a recording of")
    return given, is_module


def at_home(stage: Stage, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with the places of the original files."""
    return replace(diagnosis, findings=tuple(_home(stage, finding) for finding in diagnosis.findings))


def _home(stage: Stage, finding: Finding) -> Finding:
    def moved(location: Location) -> Location:
        return replace(location, file=stage.original(location.file))

    change = finding.change and replace(finding.change, file=stage.original(finding.change.file))
    place = finding.location and moved(finding.location)
    return replace(finding, location=place, also=tuple(map(moved, finding.also)), change=change)
