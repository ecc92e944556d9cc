"""The diagnosed runs below a log directory, and what the tab shows of each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from urllib.parse import quote, unquote, urlencode

from profkit.core.errors import UnreadableInput
from profkit.findings.values import Severity, notable
from profkit.report.json import load_run_json
from profkit.report.wording import printable, verdict
from profkit.run.directory import DIAGNOSIS_FILE

NAME = "profkit"
"""The tab's, in addresses and on the page."""
_INTERPRETER = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun)")
_MOST_RUNS = 500
_MOST_FOLDERS = 20_000
"""The rest of a larger log directory is ignored."""
_CLOCK_NS = 2_000_000_000
"""The coarsest clock of a file system (FAT). A directory that changed more recently may change again unnoticed."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the tab's list. The client asks for ``id`` and shows ``name``. Runs of one ``program`` are grouped; it
    is empty for a trace from elsewhere. ``step_ns`` is None without steps; ``worst`` is empty without findings to act
    on."""

    id: str
    name: str
    program: str
    started: str
    verdict: str
    step_ns: int | None
    saving: float
    worst: str


@dataclass(frozen=True, slots=True)
class _Listing:
    """The contents of a directory that last changed at ``changed_ns``."""

    changed_ns: int
    inner: tuple[str, ...]
    holds_diagnosis: bool


class Runs:
    """The runs below ``folders``, in TensorBoard's format for several (``name:path,path``). TensorBoard asks every few
    seconds, so unchanged directories are not read again."""

    def __init__(self, folders: str) -> None:
        self._folders = folders
        self._listings: dict[str, _Listing] = {}

    def find(self) -> dict[str, Path]:
        """The directories with a diagnosis, latest first, by ids made of their names below the log directories."""
        found: dict[str, Path] = {}
        seen: dict[str, _Listing] = {}
        for part in self._folders.split(","):
            root = Path(_without_name(part.strip())).expanduser()
            for folder in self._walk(root, seen):
                name = folder.relative_to(root).as_posix() if folder != root else root.resolve().name
                found.setdefault(id_of(name), folder)
        self._listings.clear()
        self._listings.update(seen)
        latest = sorted(found, key=lambda name: (_age_ns(found[name]), name), reverse=True)
        return {name: found[name] for name in latest[:_MOST_RUNS]}

    def _walk(self, root: Path, seen: dict[str, _Listing]) -> Iterator[Path]:
        """The folders below ``root`` with a diagnosis. The listing of each visited folder goes into ``seen``."""
        left = [str(root)]
        while left and len(seen) < _MOST_FOLDERS:
            folder = left.pop()
            listing = self._list(folder)
            if listing is None:
                continue
            seen[folder] = listing
            left += [os.path.join(folder, name) for name in reversed(listing.inner)]
            if listing.holds_diagnosis:
                yield Path(folder)

    def _list(self, folder: str) -> _Listing | None:
        known = self._listings.get(folder)
        try:
            changed_ns = os.stat(folder).st_mtime_ns
            if known is not None and known.changed_ns == changed_ns:
                return known
            with os.scandir(folder) as entries:
                return _read_listing(changed_ns, list(entries))
        except (OSError, ValueError):  # ValueError: a name that no path can have
            return None


def _read_listing(changed_ns: int, entries: list[os.DirEntry[str]]) -> _Listing:
    inner = sorted(
        entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
    )
    holds_diagnosis = any(entry.name == DIAGNOSIS_FILE for entry in entries)
    is_settled = time.time_ns() - changed_ns > _CLOCK_NS
    return _Listing(changed_ns if is_settled else -1, tuple(inner), holds_diagnosis)


def id_of(name: str) -> str:
    """A name that any page can send: file names may hold control characters, and bytes that are no text."""
    return quote(name, errors="surrogateescape")


def report_address(folders: str, name: str) -> str | None:
    """The address of a run's report at its timeline, for another plugin's pages; None if there is none."""
    run = id_of(name)
    return f"../{NAME}/report?{urlencode({'run': run})}#timeline" if run in Runs(folders).find() else None


def _without_name(part: str) -> str:
    name, colon, path = part.partition(":")
    return path if colon and len(name) > 1 and not os.path.exists(part) else part  # one letter: a drive of Windows


def _age_ns(folder: Path) -> int:
    try:
        return (folder / DIAGNOSIS_FILE).stat().st_mtime_ns
    except OSError:
        return 0


def program_of(command: Sequence[str]) -> str:
    """What was run, without the interpreter, folders and arguments: ``train.py``, ``pkg.train`` after ``-m``, or the
    name of a scenario."""
    words = command[1:] if command and _INTERPRETER.fullmatch(command[0]) else command
    words = words[2:] if words[:1] == (NAME,) else words
    named = words[1:] if words[:1] == ("-m",) else [PurePath(word).name for word in words]
    return named[0] if named else ""


def row_of(run: str, folder: Path) -> RunRow:
    """What the tab shows of a run, or the reason why its diagnosis cannot be read."""
    return _row(run, folder, _age_ns(folder))


@lru_cache(maxsize=2 * _MOST_RUNS)
def _row(run: str, folder: Path, age_ns: int) -> RunRow:  # noqa: ARG001  # a new age is a new diagnosis
    name = printable(unquote(run, errors="surrogateescape"))
    try:
        found = load_run_json(folder)
    except UnreadableInput as error:
        return RunRow(run, name, "", "", printable(str(error)), None, 0.0, "")
    acted = notable(found.findings)
    largest = max((one.saving.fraction for one in acted if one.saving is not None), default=0.0)
    saving = max(largest, found.total.fraction if found.total is not None else 0.0)
    worst = min((one.severity for one in acted), key=lambda severity: severity.rank, default=Severity.INFO)
    timing = found.timing
    return RunRow(
        id=run,
        name=name,
        program=printable(program_of(found.run.command)),
        started=printable(found.run.started or ""),
        verdict=verdict(found),
        step_ns=timing.unprofiled_step_time_ns or timing.step_time_ns,
        saving=saving,
        worst=worst.value if acted else "",
    )
