"""The columns of a large trace, kept in the user's cache folder, so that the next diagnosis need not decode it again.

The folder (``~/.cache/profkit/columns`` on Linux) is bounded in size: the least recently used files go first. A file is
an ``.npz`` as NumPy writes it, with one array per column and one of bytes for the tables as JSON. It is only used if it
was made from this very trace (size, time of change, a hash of both ends) by this version of the reader with this memory
limit. A copy of a remote trace counts as that trace while its file system reports the same version. The content is
checked like that of any other file: nothing is unpickled, and every code must lie within its table.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from profkit.core.files.reading import open_file
from profkit.trace.events import NONE, Category, Events, Lane, Recording, Trace
from profkit.trace.times import DAY_NS

if TYPE_CHECKING:  # imported only when used: small traces need none of them
    from zipfile import ZipFile

CACHE = "PROFKIT_CACHE"
"""The environment variable that names another folder; 0 turns the cache off."""
MOST_BYTES = 4 << 30
"""All files together: some twenty traces of a gigabyte of text."""
FORMAT = 9
"""Increased with every change to what the reader makes of a trace."""
FEWEST_EVENTS = 50_000
"""A trace with fewer is at most some 10 MB of text, which takes a tenth of a second to decode."""
SMALLEST_BYTES = 256 << 10
"""No smaller file holds that many events, however well it is compressed: the best take some 8 bytes each."""
_ENDS_BYTES = 64 << 10
_SUFFIX = ".npz"
_STORED = 0
"""The archive's code for a member that is not compressed."""
_TABLES = "tables"
_MOST_SITES = 10**7
_TYPES = {
    "category": (np.uint8,),
    "device_type": (np.int8,),
    "device": (np.int8,),
    "name_code": (np.int32,),
    "lane": (np.int32,),
    "dims_code": (np.int32,),
    "types_code": (np.int32,),
    "concrete_code": (np.int32,),
    "collective_code": (np.int32,),
    "site": (np.int32,),
    "correlation": (np.int32, np.int64),
    "external": (np.int32, np.int64),
    "sequence": (np.int32, np.int64),
}
"""The types that a column may have; all others are 64 bits wide."""


class _Tables(msgspec.Struct):
    """All of a `Trace` except its events, and what it was read from."""

    made_from: tuple[int, int, int, int, str]
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    texts: tuple[str, ...]
    base_ns: int
    recording: Recording
    health: tuple[str, ...]


class Origin(msgspec.Struct, frozen=True):
    """What a file is a copy of, and that file's version; empty if nothing shows when it changes."""

    name: str
    version: str


class _Unusable(Exception):
    """The file's columns cannot be trusted."""


def read_through_cache(
    path: Path, read: Callable[[Path], Trace], limit_bytes: int, origin: Origin | None = None
) -> Trace:
    """The trace in a file: from its cached columns if they are up to date, else read, and cached if it is large.

    A cache that cannot be read or written never fails the reading. A copy without a known version is not cached.
    """
    chosen = os.environ.get(CACHE, "")
    if chosen == "0" or (origin is not None and not origin.version):
        return read(path)
    try:
        if path.stat().st_size < SMALLEST_BYTES:
            return read(path)
        made_from, kept = _fingerprint(path, limit_bytes, origin), _kept_file(path, chosen, origin)
    except (OSError, RuntimeError):  # the reader says what is wrong with the file; a user may have no home
        return read(path)
    with suppress(OSError, _Unusable):
        found = _load(kept, made_from)
        if found is not None:
            os.utime(kept)
            return found
    trace = read(path)
    if len(trace.events) >= FEWEST_EVENTS:
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            _save(trace, kept, made_from)
            _remove_oldest(kept.parent)
    return trace


def _kept_file(path: Path, chosen: str, origin: Origin | None) -> Path:
    """The file that caches this file's columns, in the ``chosen`` folder if there is one."""
    import hashlib

    from platformdirs import user_cache_path

    folder = Path(chosen) if chosen else user_cache_path("profkit", appauthor=False) / "columns"
    name = os.fsencode(path.resolve() if origin is None else origin.name)
    return folder / f"{hashlib.sha256(name).hexdigest()[:32]}{_SUFFIX}"


def _remove_oldest(folder: Path) -> None:
    """Remove the least recently used files until the folder is within its bound."""
    files = [(entry.stat(), entry.path) for entry in os.scandir(folder) if entry.name.endswith(_SUFFIX)]
    left_bytes = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
        if left_bytes <= MOST_BYTES:
            return
        with suppress(OSError):
            os.unlink(path)
        left_bytes -= status.st_size


def _fingerprint(path: Path, limit_bytes: int, origin: Origin | None) -> tuple[int, int, int, int, str]:
    """Identifies the file that columns are made from, and the reader and the limit that they are made with."""
    import hashlib

    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        ends = file.read(_ENDS_BYTES)
        file.seek(max(status.st_size - _ENDS_BYTES, 0))
        ends += file.read(_ENDS_BYTES)
    if origin is None:
        return FORMAT, limit_bytes, status.st_size, status.st_mtime_ns, hashlib.sha256(ends).hexdigest()
    return FORMAT, limit_bytes, status.st_size, 0, hashlib.sha256(ends + origin.version.encode()).hexdigest()


def _save(trace: Trace, target: Path, made_from: tuple[int, int, int, int, str]) -> None:
    """Write the columns under another name first, so that nobody ever reads half of them."""
    import tempfile

    tables = _Tables(made_from, trace.names, trace.lanes, trace.texts, trace.base_ns, trace.recording, trace.health)
    columns = {column.name: getattr(trace.events, column.name) for column in fields(Events)}
    columns = {key: column[:1] if column.strides == (0,) else column for key, column in columns.items()}
    columns[_TABLES] = np.frombuffer(msgspec.json.encode(tables), dtype=np.uint8)
    handle, unfinished = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **columns)
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _load(source: Path, made_from: tuple[int, int, int, int, str]) -> Trace | None:
    """The trace; None if it was made from something else. Raises `_Unusable`, or `OSError` if there is no file."""
    from zipfile import ZipFile

    try:
        with open_file(source) as file, ZipFile(file) as archive:
            tables = msgspec.json.decode(_array(archive, _TABLES, (np.uint8,)).tobytes(), type=_Tables)
            if tables.made_from != made_from:
                return None
            columns = {
                column.name: _array(archive, column.name, _TYPES.get(column.name, (np.int64,)))
                for column in fields(Events)
            }
    except OSError:
        raise
    except Exception as error:  # damage makes zipfile raise much that it does not document
        raise _Unusable from error
    length = len(columns["start_ns"])
    for key, column in columns.items():
        if len(column) == 1:
            columns[key] = np.broadcast_to(column, length)
        elif len(column) != length:
            raise _Unusable
    events = Events(**columns)
    if not length or not _is_sound(events, tables):
        raise _Unusable
    return Trace(events, tables.names, tables.lanes, tables.texts, tables.base_ns, tables.recording, tables.health)


def _array(archive: ZipFile, name: str, types: tuple[type[Any], ...]) -> np.ndarray[Any, Any]:
    """One array of an archive. It must not be compressed, so that none is larger than the file."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != _STORED or member.file_size != member.compress_size:
        raise _Unusable
    content = archive.read(member)
    file = io.BytesIO(content[: 1 << 12])
    if np.lib.format.read_magic(file) != (1, 0):
        raise _Unusable
    shape, _, kind = np.lib.format.read_array_header_1_0(file)
    if len(shape) != 1 or kind not in [np.dtype(each) for each in types]:
        raise _Unusable
    return np.frombuffer(content, dtype=kind, count=shape[0], offset=file.tell())


def _is_sound(events: Events, tables: _Tables) -> bool:
    """Whether all codes lie within their tables, all times are times, and the events are in order."""
    texts = (NONE, len(tables.texts) - 1)
    ranges: dict[str, tuple[int, int]] = {
        "name_code": (0, len(tables.names) - 1),
        "lane": (0, len(tables.lanes) - 1),
        "category": (0, max(Category)),
        "start_ns": (0, 2 * DAY_NS),
        "duration_ns": (0, DAY_NS),
        "dims_code": texts,
        "types_code": texts,
        "concrete_code": texts,
        "collective_code": texts,
        "device_type": (NONE, 127),
        "device": (NONE, 127),
        "site": (NONE, _MOST_SITES),
    }
    for name, (least, most) in ranges.items():
        column = getattr(events, name)
        if column.strides == (0,):
            column = column[:1]
        if column.min() < least or column.max() > most:
            return False
    lane, start, duration = events.lane, events.start_ns, events.duration_ns
    later = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (duration[1:] <= duration[:-1]))
    return bool(((lane[1:] > lane[:-1]) | ((lane[1:] == lane[:-1]) & later)).all())
