"""Which recordings in a folder belong to the ranks of a launch.

A rank is recognised by its number: in the ``run.json`` beside its trace, in a name (``rank3/``, ``rank-3.json.gz``,
``worker_rank3.1699.pt.trace.json``), or in the head of the trace, where Kineto writes ``distributedInfo``. Two numbers
make a launch. This module only chooses files; which rank a recording really is shows when it is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from profkit.core.errors import UnreadableInput
from profkit.core.files.kinds import leads_out
from profkit.diagnosis.launch.remote import MOST_FILES, find_remote, path_of
from profkit.run.directory import (
    DIAGNOSIS_FILE,
    LAUNCH_FILE,
    REPORT_FILE,
    RUN_FILE,
    SMALL_FILES,
    TRACE_SUFFIXES,
    find_trace,
    load_run,
)
from profkit.trace.containers import Content

_ENDINGS = (".json", ".json.gz", ".json.zst")
_NO_TRACES = frozenset((*SMALL_FILES, DIAGNOSIS_FILE, LAUNCH_FILE, REPORT_FILE))
_NUMBERED = re.compile(r"rank[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_TENSOR_PARALLEL = re.compile(r"-TP-(\d{1,6})\.trace\.json")
"""SGLang's names. With a pipeline or data parallelism the name goes on, and this number is not the rank."""
_CYCLE = re.compile(r"(?:\.\d+)?\.pt\.trace\.json")
"""What follows the worker's name in a file of ``tensorboard_trace_handler``, with or without the time."""
_GIVEN_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]{0,2000}?"rank"\s*:\s*([^\s,}]+)')
_RANK = re.compile(rb"\d{1,6}")
UNKNOWN_RANK = -1
"""For a recording that names an impossible rank. It is read, so that the user learns of it."""
_HEAD_BYTES = 1 << 20
"""The properties of eight devices, and what else precedes it, take a tenth of this."""


def find_ranks(directory: Path) -> list[Path]:
    """The run directories and traces of one launch's ranks, in ``directory`` or in its folders for each host; empty if
    it holds no launch.

    Raises `UnreadableInput` if the directory cannot be read.
    """
    try:
        if (directory / RUN_FILE).exists():  # a single process
            return []
        return _in_one_folder(directory) or _in_folders_of_hosts(directory)
    except OSError as error:
        raise UnreadableInput(directory, f"cannot be read: {error.strerror or error}") from error


def launch_of(run: Path) -> Path | None:
    """The directory of the launch that a run directory belongs to; None if it belongs to none."""
    parent = run.parent
    return parent if run in find_ranks(parent) else None


def is_light(recording: Path) -> bool:
    """Whether profkit recorded only collectives and steps there, as it does for most ranks of a large launch."""
    return recording.is_dir() and load_run(recording).is_light


def file_of(recording: Path) -> Path | None:
    """The trace of a recording: a run directory's, or the file itself."""
    return find_trace(recording) if recording.is_dir() else recording


def list_traces(place: str) -> list[tuple[str, int, int]]:
    """Path, size and time of change of each rank's trace in a place. Other machines run this."""
    found = []
    for path in find_ranks(Path(place)):
        trace = file_of(path)
        if trace is not None:
            about = trace.stat()
            found.append((str(path), about.st_size, about.st_mtime_ns))
    return found


def find_places(target: str) -> list[str]:
    """The recordings of a launch's ranks, as paths or as addresses on another file system. There only names count, and
    no file is opened."""
    path = path_of(target)
    if path is not None:
        return [str(one) for one in find_ranks(path)]
    names = [one.url for one in find_remote(target) if one.url.rpartition("/")[2] not in _NO_TRACES]
    traces = [name for name in names if name.endswith(_ENDINGS)]
    numbered = {name: number_in(name[len(target) :]) for name in traces}
    chosen = [name for name, number in numbered.items() if number is not None]
    if len({numbered[name] for name in chosen}) < 2:
        chosen = [name for name in traces if name.endswith(TRACE_SUFFIXES)]
    return _last_of_each(chosen)


def _in_one_folder(directory: Path) -> list[Path]:
    """Ranks as folders and files beside each other."""
    recordings = dict(_recordings_in(directory))
    ranks = {path: number for path, number in recordings.items() if number is not None}
    chosen = [Path(name) for name in _last_of_each(str(path) for path in ranks)]
    is_launch = len({ranks[path] for path in chosen} - {UNKNOWN_RANK}) > 1 or (directory / LAUNCH_FILE).exists()
    return sorted(chosen, key=lambda path: (ranks[path], path)) if is_launch else []


def _in_folders_of_hosts(directory: Path) -> list[Path]:
    """Ranks in a folder for each host, no rank in two of them."""
    found: dict[Path, int] = {}
    for folder in _entries(directory, os.DirEntry.is_dir):
        found |= {path: number for path, number in _recordings_in(folder) if number is not None}
    numbers = list(found.values())
    is_one = len(numbers) > 1 and len(set(numbers)) == len(numbers)
    return sorted(found, key=lambda path: (found[path], path)) if is_one else []


def _recordings_in(directory: Path) -> Iterator[tuple[Path, int | None]]:
    """The run directories and traces directly in a folder, and the rank that each seems to be."""
    if (directory / RUN_FILE).exists():
        return
    for folder in _entries(directory, os.DirEntry.is_dir):
        trace = find_trace(folder)
        if trace is not None:
            yield (folder if (folder / RUN_FILE).exists() else trace), _rank_of_folder(folder, trace)
    for path in _entries(directory, os.DirEntry.is_file):
        if path.name.endswith(_ENDINGS) and path.name not in _NO_TRACES:
            number = number_in(path.name)
            yield path, _rank_in_head(path) if number is None else number


def _rank_of_folder(folder: Path, trace: Path) -> int | None:
    if (folder / RUN_FILE).exists():
        with suppress(UnreadableInput):
            identity = load_run(folder).identity
            return identity.rank if identity is not None and identity.rank >= 0 else number_in(folder.name)
    number = number_in(f"{folder.name}/{trace.name}")
    return _rank_in_head(trace) if number is None else number


def _entries(directory: Path, wanted: Callable[[os.DirEntry[str]], bool]) -> list[Path]:
    """What lies in a folder, without links that lead out of it: the folder may come from anybody."""
    with os.scandir(directory) as entries:
        chosen = [entry for entry in islice(entries, MOST_FILES) if wanted(entry)]
    paths = sorted((Path(entry.path), entry.is_symlink()) for entry in chosen)
    return [path for path, is_link in paths if not (is_link and leads_out(path, directory))]


def number_in(name: str) -> int | None:
    """The rank in a name, the last one if there are several."""
    found = _NUMBERED.findall(name) or _TENSOR_PARALLEL.findall(name)
    return int(found[-1]) if found else None


def _rank_in_head(path: Path) -> int | None:
    """The rank that the head of the trace gives."""
    head = b""
    with suppress(UnreadableInput):
        head = next(iter(Content(path)), b"")
    said = _GIVEN_RANK.search(head[:_HEAD_BYTES])
    if said is None:
        return None
    return int(said[1]) if _RANK.fullmatch(said[1]) else UNKNOWN_RANK


def _last_of_each(paths: Iterable[str]) -> list[str]:
    """The last recording of each worker: `tensorboard_trace_handler` writes one for each cycle."""
    workers: dict[str, str] = {}
    for path in sorted(paths):
        name = PurePosixPath(path).name
        worker = path.removesuffix(name) + (name[: cycle.start()] if (cycle := _CYCLE.search(name)) else name)
        workers[worker] = path
    return sorted(workers.values())
