"""The runs below a log directory, as far as their diagnoses are written, and what the tab shows of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from profkit.errors import UnreadableInput
from profkit.findings import Diagnosis, Severity, notable
from profkit.report.json import parse_json
from profkit.report.wording import printable, verdict
from profkit.run import DIAGNOSIS_FILE

_MOST_RUNS = 500
_MOST_FOLDERS = 20_000
"""Log directories of years: what lies beyond is not looked at."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the tab lists it. ``step_ns`` is None without steps, ``worst`` empty without findings to act on."""

    name: str
    started: str
    verdict: str
    step_ns: int | None
    saving: float
    worst: str


def find_runs(folders: str) -> dict[str, Path]:
    """The directories with a diagnosis, by their names below the log directories, of which TensorBoard takes several
    (``name:path,path``). The latest come first."""
    found: dict[str, Path] = {}
    for part in folders.split(","):
        root = Path(_without_name(part.strip())).expanduser()
        for folder in _folders(root):
            name = folder.relative_to(root).as_posix() if folder != root else root.resolve().name
            found.setdefault(name, folder)
    latest = sorted(found, key=lambda name: (_age_ns(found[name]), name), reverse=True)
    return {name: found[name] for name in latest[:_MOST_RUNS]}


def _without_name(part: str) -> str:
    name, colon, path = part.partition(":")
    return path if colon and len(name) > 1 and not os.path.exists(part) else part  # one letter: a drive of Windows


def _folders(root: Path) -> Iterator[Path]:
    for number, (folder, inner, files) in enumerate(os.walk(root)):
        if number > _MOST_FOLDERS:
            return
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if DIAGNOSIS_FILE in files:
            yield Path(folder)


def _age_ns(folder: Path) -> int:
    try:
        return (folder / DIAGNOSIS_FILE).stat().st_mtime_ns
    except OSError:
        return 0


def read_diagnosis(folder: Path) -> Diagnosis:
    """The diagnosis in a run directory. Raises `UnreadableInput`."""
    return _parse(folder / DIAGNOSIS_FILE, _age_ns(folder))


@lru_cache(maxsize=64)
def _parse(path: Path, age_ns: int) -> Diagnosis:  # noqa: ARG001  # a new age is a new diagnosis
    try:
        return parse_json(path.read_bytes(), path)
    except OSError as error:
        raise UnreadableInput(path, f"cannot be read: {error.strerror or error}") from error


def row_of(name: str, folder: Path) -> RunRow:
    """What the tab shows of a run; the reason where its diagnosis cannot be read."""
    try:
        found = read_diagnosis(folder)
    except UnreadableInput as error:
        return RunRow(printable(name), "", printable(str(error)), None, 0.0, "")
    acted = notable(found.findings)
    largest = max((one.saving.fraction for one in acted if one.saving is not None), default=0.0)
    saving = max(largest, found.total.fraction if found.total is not None else 0.0)
    worst = min((one.severity for one in acted), key=lambda severity: severity.rank, default=Severity.INFO)
    timing = found.timing
    return RunRow(
        name=printable(name),
        started=printable(found.run.started or ""),
        verdict=verdict(found),
        step_ns=timing.unprofiled_step_time_ns or timing.step_time_ns,
        saving=saving,
        worst=worst.value if acted else "",
    )
