"""From recordings to the one trace file that is kept: compact, and whole or not there."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from isal import igzip

from profkit.collect.session import Recording
from profkit.errors import RunDirectoryError
from profkit.marks import STEP_MARK

_FAST = 1
"""isal's level: 0 is barely faster, 3 twice as slow for a tenth less."""
_CHUNK_BYTES = 1 << 20
_REMAINDER = "profkit.remainder"
"""What an unfinished step is renamed to, so that no reader takes it for one."""
_FIRST = b'"traceEvents"'
_LAST = b'"Record Window End"'
"""Name of the event that Kineto's exporter puts at the end of every trace."""

Span = tuple[Path, int, int]
"""Bytes of a file, from and to."""


def export(recordings: Sequence[Recording], directory: Path, unfinished_step: int | None = None) -> str:
    """Write the recordings, in order of time, as one trace into ``directory`` and return its name.

    All that a trace says besides its events is taken from the first. An unfinished step is kept, but not as a step.
    Raises `RunDirectoryError` where the trace could not be written whole.
    """
    stem = f"{_worker_name()}.{time.time_ns()}.pt.trace.json"
    plain = [directory / f".{number}.{stem}" for number in range(len(recordings))]
    packed = directory / f".{stem}.gz"
    try:
        for recording, path in zip(recordings, plain, strict=True):
            recording.export(path)
            if not _is_whole(path):
                raise RunDirectoryError(directory, "the trace could not be written: is the disk full?")
        _compress(_joined(plain), packed, unfinished_step)
        os.replace(packed, directory / f"{stem}.gz")
    except OSError as error:
        raise RunDirectoryError(directory, f"the trace could not be written: {error.strerror or error}") from error
    finally:
        unfinished = [path.with_name(f"{path.name}.tmp") for path in plain]  # Kineto's own, where it could not go on
        for path in (*plain, *unfinished, packed):
            path.unlink(missing_ok=True)
    return f"{stem}.gz"


def _worker_name() -> str:
    """``<host>_<pid>``, as ``torch.profiler.tensorboard_trace_handler`` names it."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) + f"_{os.getpid()}"


def _is_whole(path: Path) -> bool:
    """Whether the JSON ends as it should: on a full disk the exporter cuts it off without an error."""
    try:
        return _read(path, max(0, path.stat().st_size - 64)).rstrip().endswith(b"}")
    except FileNotFoundError:
        return False


def _joined(paths: Sequence[Path]) -> Iterator[Span | bytes]:
    """The first trace with the events of the others after its own."""
    first, *others = paths
    end = _end_of_events(first) if others else first.stat().st_size
    yield first, 0, end
    for path in others:
        head = _read(path, 0, _CHUNK_BYTES)
        yield b",\n"
        yield path, head.index(b"[", head.index(_FIRST)) + 1, _end_of_events(path)
    yield first, end, first.stat().st_size


def _end_of_events(path: Path) -> int:
    """Where the list of events closes. The longest thing that follows it is a list of devices."""
    size = path.stat().st_size
    start = max(0, size - _CHUNK_BYTES)
    tail = _read(path, start)
    return start + tail.index(b"]", tail.rindex(_LAST))


def _read(path: Path, start: int, length: int = -1) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def _compress(spans: Iterator[Span | bytes], packed: Path, unfinished_step: int | None) -> None:
    """Pack chunks of whole lines; an event's name never spans two."""
    name, remainder = f'"{STEP_MARK}{unfinished_step}"'.encode(), f'"{_REMAINDER}"'.encode()
    with igzip.open(packed, "wb", _FAST) as target:  # type: ignore[no-untyped-call]  # isal has no types
        for span in spans:
            for chunk in [span] if isinstance(span, bytes) else _chunks(*span):
                target.write(chunk if unfinished_step is None else chunk.replace(name, remainder))


def _chunks(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while (left := end - file.tell()) > 0:
            chunk = file.read(min(_CHUNK_BYTES, left))
            yield chunk + file.readline(max(0, left - len(chunk)))
