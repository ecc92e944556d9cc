"""Reading a recording of any kind, by its first bytes and not its name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.core.errors import UnreadableInput
from profkit.core.files.reading import open_file, refuse_special_file
from profkit.trace.cache import Origin, read_through_cache
from profkit.trace.containers import Content
from profkit.trace.events import Trace
from profkit.trace.limits import DEFAULT_LIMIT_BYTES
from profkit.trace.snapshot.columns import is_snapshot

if TYPE_CHECKING:
    from profkit.trace.containers import OnProgress

_SQLITE_MAGIC = b"SQLite format 3\0"
_UNEXPORTED = (".nsys-rep", ".qdrep")
_PICKLES = (".pickle", ".pkl")


def read_trace(
    path: Path,
    on_progress: OnProgress | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    origin: Origin | None = None,
) -> Trace:
    """Read a Kineto trace or an Nsight Systems export.

    ``on_progress`` hears how far a Kineto trace has been read. If the diagnosis would take more memory than the limit,
    only the beginning that fits is kept. ``origin`` is what the file is a copy of.

    Raises `UnreadableInput`, naming the file and the cause, if it holds no event.
    """
    refuse_special_file(path)
    if _first_bytes(path, len(_SQLITE_MAGIC)) == _SQLITE_MAGIC:
        try:
            from profkit.trace.nsys.reader import read_nsys
        except ImportError as error:  # Python can be built without SQLite
            raise UnreadableInput(path, f"is an SQLite file, which this Python cannot read: {error}") from error
        return read_nsys(path, limit_bytes)
    if path.name.endswith(_UNEXPORTED):
        raise UnreadableInput(path, "is Nsight Systems' own format: `nsys export --type sqlite` makes one to diagnose")
    from profkit.trace.kineto.reader import read_kineto

    read = partial(read_kineto, limit_bytes=limit_bytes, on_progress=on_progress)
    return read_through_cache(path, read, limit_bytes, origin)


def holds_snapshot(path: Path) -> bool:
    """Whether a file is to be read as a memory snapshot: by its content, or by its name, so that the error for a file
    that only has the name speaks of snapshots."""
    refuse_special_file(path)
    if path.name.endswith(_PICKLES):
        return True
    try:
        return is_snapshot(next(iter(Content(path)), b""))
    except UnreadableInput:  # the reader says what is wrong
        return False


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(count)
    except OSError:  # the reader says what is wrong
        return b""
