"""The accounts that DataLoader workers wrote about themselves, in the directory ``workers`` of a run.

Each worker appends lines of JSON to its own file; the first line identifies the worker. The main process writes what a
loader's dataset holds. A worker may be killed at any moment and a directory may come from anybody, so lines and files
that profkit does not write are ignored, and only a limited number is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Struct

from profkit.core.errors import UnreadableInput
from profkit.core.files.kinds import is_own_file
from profkit.core.files.reading import read_file
from profkit.run.directory import WORKERS_DIRECTORY, CallSite

_MAX_FILES = 512
_MAX_FILE_BYTES = 4 << 20
_MAX_LINES = 4000
"""More than any recording writes: a worker stops after 2,000 lines of a few hundred bytes. Whoever puts more into the
directory must not cost memory."""
_Value = TypeVar("_Value")
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class WorkerSums(Struct, frozen=True):
    """A worker's sums ``elapsed_ns`` after it began, in nanoseconds.

    ``fetch_ns`` is the time in the dataset's own code, ``collate_ns`` that of collating, ``put_ns`` the main thread's
    part of handing batches over. ``send_ns`` is the rest of that, on another thread: until the batch is pickled and the
    pipe has room. ``faults`` are page faults. For these batches the main thread used ``busy_cpu_ns`` of CPU time and
    waited ``queued_ns`` for a CPU; ``cpu_ns`` is the CPU time of the whole process. Memory and the threads of an
    operator are None if they were not read.
    """

    batches: _Count
    fetch_ns: _Count
    collate_ns: _Count
    put_ns: _Count
    send_ns: _Count
    busy_cpu_ns: _Count
    queued_ns: _Count
    elapsed_ns: _Count
    cpu_ns: _Count
    private_bytes: _Count | None = None
    shared_bytes: _Count | None = None
    faults: _Count | None = None
    threads: _Count | None = None


class WorkerRecord(Struct, frozen=True):
    """One worker: its loader, its number among the loader's workers, and its sums over time.

    The loader asked for it at ``asked_ns``, and it began its account at ``begun_ns`` of the same clock; 0 if unknown.
    """

    loader: int
    worker: int
    workers: int
    sums: tuple[WorkerSums, ...]
    asked_ns: int = 0
    begun_ns: int = 0


class HeldObjects(Struct, frozen=True):
    """A container of Python objects that a dataset holds: their number and their approximate size. ``site`` is the line
    that fills it."""

    path: str
    objects: _Count
    bytes: _Count
    site: CallSite | None = None


class LoaderRecord(Struct, frozen=True):
    """A DataLoader that started workers while profkit recorded, and the objects that its dataset holds."""

    loader: _Count
    dataset: str
    workers: _Count
    persistent: bool = False
    objects: tuple[HeldObjects, ...] = ()


class Workers(Struct, frozen=True):
    """All accounts of a run."""

    loaders: tuple[LoaderRecord, ...] = ()
    records: tuple[WorkerRecord, ...] = ()


class _Header(Struct, frozen=True):
    loader: _Count
    worker: _Count
    workers: _Count
    asked_ns: _Count = 0
    begun_ns: _Count = 0


def read_workers(directory: Path) -> Workers:
    """The accounts in a run directory; empty if there are none."""
    try:
        there = (directory / WORKERS_DIRECTORY).iterdir()
        files = sorted(path for path in there if is_own_file(path, directory))[:_MAX_FILES]
    except OSError:
        return Workers()
    loaders = [_decode(data, LoaderRecord) for path in files if path.suffix == ".json" for data in _contents(path)]
    records = [_record(data) for path in files if path.suffix == ".jsonl" for data in _contents(path)]
    return Workers(
        tuple(loader for loader in loaders if loader is not None),
        tuple(record for record in records if record is not None),
    )


def _contents(path: Path) -> Iterator[bytes]:
    """The file's content, if it is readable and no larger than a worker writes."""
    with suppress(OSError, UnreadableInput):
        yield read_file(path, _MAX_FILE_BYTES)


def _record(data: bytes) -> WorkerRecord | None:
    first, *rest = data.split(b"\n")[:_MAX_LINES] or [b""]
    header = _decode(first, _Header)
    if header is None:
        return None
    sums: list[WorkerSums] = []
    for line in rest:
        found = _decode(line, WorkerSums)
        if found is not None and (not sums or found.batches > sums[-1].batches):
            sums.append(found)
    return WorkerRecord(header.loader, header.worker, header.workers, tuple(sums), header.asked_ns, header.begun_ns)


def _decode(data: bytes, kind: type[_Value]) -> _Value | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
