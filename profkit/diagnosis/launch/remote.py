"""Traces that lie elsewhere (``s3://``, ``gs://``, ``hdfs://`` …), through fsspec: an extra (``profkit[remote]``).

A trace is copied block by block to a temporary folder, read there and removed. It is not streamed, because the reader
goes back in a damaged file and forks for a large one, which no connection allows. A process has at most one copy at a
time.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct

from profkit.core.errors import ProfkitError, UnreadableInput, UsageError
from profkit.core.forks import Channel, Fork, processes_at_hand
from profkit.core.units import format_bytes
from profkit.run.directory import RUN_FILE, SMALL_FILES
from profkit.trace.cache import Origin

MOST_FILES = 100_000
"""Files listed below one place. A launch of 4,096 ranks with twenty files each has fewer."""
_DEPTH = 4
"""Levels of folders below a place: a launch, a host, a rank, and its files."""
_MOST_SMALL_BYTES = 64 << 20
_BLOCK_BYTES = 4 << 20
_LEAST_ROOM_BYTES = 1 << 30
"""Stays free on the disk that a trace is copied to."""
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)

_VERSIONS = (
    "ETag",
    "etag",
    "generation",
    "mtime",
    "modified",
    "modificationTime",
    "LastModified",
    "last_modified",
    "created",
)
"""What file systems say about a file that changes when the file does: s3fs, gcsfs, adlfs, Hadoop's, fsspec's own."""


class Reached(Struct, frozen=True):
    """A recording on this machine, and its origin if it is a copy."""

    path: Path
    origin: Origin | None = None


class RemoteFile(Struct, frozen=True):
    url: str
    size_bytes: int


def is_url(place: str) -> bool:
    return _URL.match(place) is not None


def path_of(place: str) -> Path | None:
    """The path of a place on this machine, given as a path or a ``file://`` address; None for other addresses."""
    if not is_url(place):
        return Path(place)
    from urllib.request import url2pathname  # it imports a client for HTTP, and most places are paths

    parts = urlsplit(place)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" and not parts.netloc else None


def find_remote(url: str) -> list[RemoteFile]:
    """All files in a place and its folders, in order of name. If the place is a file, that file.

    Another process lists them if possible: file systems start threads, and a process with threads can no longer be
    forked. Raises `UnreadableInput` if there is nothing or nobody answers.
    """
    return _list_in_fork(url) if processes_at_hand() > 1 else _list(url)


@contextmanager
def within_reach(place: str) -> Iterator[Reached]:
    """A recording on this machine: the place itself, or a copy that lives as long as the context. If a trace lies in a
    run directory, the copy is that directory, with its small files.

    Raises `UnreadableInput` if a trace cannot be fetched or is too large for the disk.
    """
    path = path_of(place)
    if path is not None:
        yield Reached(path)
        return
    with tempfile.TemporaryDirectory(prefix="profkit-") as folder:
        copy = _copy_into(place, Path(folder))
        try:
            yield copy
        except UnreadableInput as error:
            if not error.path.is_relative_to(folder):
                raise
            raise UnreadableInput(place, error.cause) from error


def _copy_into(url: str, folder: Path) -> Reached:
    with _errors_naming(url):
        system, path = _open(url)
        copy = folder / re.split(r"[\\/]", path)[-1]
        about = system.info(path)
        origin = Origin(url, " ".join(f"{name}={about[name]}" for name in _VERSIONS if about.get(name)))
        _refuse_if_too_large(url, int(about["size"]), folder)
        _copy(system, path, copy)
        parent = path.rpartition("/")[0]
        if not system.exists(f"{parent}/{RUN_FILE}"):
            return Reached(copy, origin)
        _copy_small_files(system, parent, folder)
        return Reached(folder, origin)


def _copy_small_files(system: Any, parent: str, folder: Path) -> None:
    for name in SMALL_FILES:
        path = f"{parent}/{name}"
        if system.exists(path) and int(system.info(path)["size"]) <= _MOST_SMALL_BYTES:
            _copy(system, path, folder / name)


def _copy(system: Any, path: str, copy: Path) -> None:
    with system.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target, _BLOCK_BYTES)


def _refuse_if_too_large(url: str, size_bytes: int, folder: Path) -> None:
    free_bytes = shutil.disk_usage(folder).free - _LEAST_ROOM_BYTES
    if size_bytes > free_bytes:
        room = f"{format_bytes(max(free_bytes, 0))} may be used of {folder.parent} (TMPDIR names another folder)"
        raise UnreadableInput(url, f"takes {format_bytes(size_bytes)}, and {room}")


def _list(url: str) -> list[RemoteFile]:
    with _errors_naming(url):
        system, path = _open(url)
        found = system.find(path, maxdepth=_DEPTH, detail=True)
        if len(found) > MOST_FILES:
            raise UnreadableInput(url, f"holds more than {MOST_FILES:,} files: name the folder of one launch")
        files = [
            RemoteFile(system.unstrip_protocol(name), int(about["size"] or 0))
            for name, about in found.items()
            if about["type"] == "file"
        ]
    if not files:
        raise UnreadableInput(url, "no such file or folder")
    return sorted(files, key=lambda one: one.url)


def _open(url: str) -> tuple[Any, str]:
    """The file system, and the path in it."""
    if "::" in url:
        raise UsageError(f"{url}: give the address of the place itself: profkit does not look into nested file systems")
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"{url}: fsspec is not installed: pip install 'profkit[remote]'") from None
    system, path = fsspec.core.url_to_fs(url)
    return system, path


@contextmanager
def _errors_naming(url: str) -> Iterator[None]:
    """Turn every error of a file system into one of profkit's that names the place."""
    try:
        yield
    except (UsageError, UnreadableInput):
        raise
    except FileNotFoundError:
        raise UnreadableInput(url, "no such file or folder") from None
    except ImportError as error:
        raise UsageError(f"{url}: {error}") from error
    except Exception as error:  # each file system has its own errors
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnreadableInput(url, f"cannot be read: {first}") from error


def _list_in_fork(url: str) -> list[RemoteFile]:
    def work(channel: Channel) -> None:
        with suppress(ProfkitError):  # the caller lists again and raises the error
            channel.send(_list(url))

    other = Fork(work)
    try:
        return cast("list[RemoteFile]", other.channel.receive())
    except EOFError:
        return _list(url)
    finally:
        other.end()
