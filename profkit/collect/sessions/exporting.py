"""From recordings to the one trace file that is kept: compact, and either complete or absent."""

from __future__ import annotations

import io
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from isal import igzip

from profkit.collect.machine.devices import cuda_is_used
from profkit.collect.program.clocks import time
from profkit.collect.program.descriptors import KeptFile
from profkit.collect.sessions.session import ProfilerSession
from profkit.core.errors import RunDirectoryError
from profkit.core.files.writing import replacing
from profkit.core.marks import STEP_MARK
from profkit.run.directory import why_not_written

_FAST = 1
"""Compression level of isal: 0 is barely faster, 3 takes twice as long and saves a tenth."""
_CHUNK_BYTES = 1 << 20
_REMAINDER = "profkit.remainder"
"""New name of an unfinished step, so that no reader takes it for a step."""
_FIRST = b'"traceEvents"'
_LAST = b'"Record Window End"'
"""Name of the event that Kineto puts at the end of every trace."""
_DELETED_WHEN_CLOSED = getattr(os, "O_TEMPORARY", 0) | getattr(os, "O_BINARY", 0)
"""On Windows an open file keeps its name and is removed when it is closed."""

_IDS = re.compile(rb'("correlation": |"ph": "[sf]", "id": )(\d{1,10})')
"""The ids of launches and their work, and of arrows, in the words of Kineto. Those of operators never begin anew."""
_APART = 1 << 28
"""More ids than a recording can hold. Readers keep them in 32 bits, which is room for seven recordings."""

Span = tuple[IO[bytes], int, int, int]
"""A file, a range of its bytes, and what is added to the ids in it."""


def write_plain(recording: ProfilerSession, directory: Path) -> IO[bytes]:
    """Write a stopped recording into a file of ``directory``, and return the open file.

    Do this before the next recording starts: Kineto converts the times of devices and runtime calls by the clock of the
    latest session, and sets earlier ones to 0. The file has no name any more, so nothing of it remains however the
    process ends. Raises `RunDirectoryError` if the file is incomplete.
    """
    path = directory / f".{_worker_name()}.{time.time_ns()}.pt.trace.json"
    try:
        path.touch(exist_ok=False)  # raises the error that Kineto would not report
        recording.write(path)
        if not _is_whole(path):
            _write_more(path)
            raise RunDirectoryError(directory, "the trace could not be written: it was cut off for an unknown reason")
        return io.BufferedReader(KeptFile(os.open(path, os.O_RDONLY | _DELETED_WHEN_CLOSED)))
    except OSError as error:
        raise _not_written(directory, error) from error
    finally:
        unfinished = path.with_name(f"{path.name}.tmp")  # Kineto leaves this behind when it fails
        for name in (path, unfinished):
            with suppress(OSError):  # the directory may be gone
                name.unlink(missing_ok=True)


def export(traces: Sequence[IO[bytes]], directory: Path, unfinished_step: int | None = None) -> str:
    """Join the files of `write_plain`, in order of time, into one trace in ``directory`` and return its name.

    Everything besides the events comes from the first file. An unfinished step is kept, but not as a step. With a GPU
    each recording gets ids of its own, as CUPTI counts from 1 again once it was detached.
    Raises `RunDirectoryError` if the trace could not be written completely.
    """
    name = f"{_worker_name()}.{time.time_ns()}.pt.trace.json.gz"
    try:
        with replacing(directory, name) as packed:
            _compress(_joined(traces, _APART if cuda_is_used() else 0), packed, unfinished_step)
    except OSError as error:
        raise _not_written(directory, error) from error
    return name


def _not_written(directory: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(directory, f"the trace could not be written: {why_not_written(directory, error)}")


def _write_more(path: Path) -> None:
    """Raise the `OSError` that stopped Kineto, which reports none: while its file exists, writing a little more than a
    buffer's worth fails in the same way."""
    with path.open("ab", buffering=0) as file:
        file.write(bytes(_CHUNK_BYTES))
        file.write(b"\n")  # the write before may have stopped short without an error
        os.fsync(file.fileno())


def _worker_name() -> str:
    """``<host>_<pid>``, as ``torch.profiler.tensorboard_trace_handler`` names it."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) + f"_{os.getpid()}"


def _is_whole(path: Path) -> bool:
    """Whether the JSON is complete: on a full disk Kineto cuts it off without an error."""
    try:
        with path.open("rb") as file:
            return _read(file, max(0, _size(file) - 64)).rstrip().endswith(b"}")
    except FileNotFoundError:
        return False


def _joined(files: Sequence[IO[bytes]], apart: int) -> Iterator[Span | bytes]:
    """The first trace, with the others' events appended to its own, and ids ``apart``. The last one, the measured
    steps' and often the largest, keeps its own."""
    first, *others = files
    end = _end_of_events(first) if others else _size(first)
    yield first, 0, end, len(others) * apart
    for number, file in enumerate(others, 1):
        yield b",\n"
        yield (file, *span_of_events(file), (len(others) - number) * apart)
    yield first, end, _size(first), 0


def span_of_events(file: IO[bytes]) -> tuple[int, int]:
    """Where the list of events begins and ends, without its brackets."""
    head = _read(file, 0, _CHUNK_BYTES)
    return head.index(b"[", head.index(_FIRST)) + 1, _end_of_events(file)


def _end_of_events(file: IO[bytes]) -> int:
    """Where the list of events closes. At most a list of devices follows it."""
    start = max(0, _size(file) - _CHUNK_BYTES)
    tail = _read(file, start)
    return start + tail.index(b"]", tail.rindex(_LAST))


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _read(file: IO[bytes], start: int, length: int = -1) -> bytes:
    file.seek(start)
    return file.read(length)


def _compress(spans: Iterator[Span | bytes], packed: IO[bytes], unfinished_step: int | None) -> None:
    """Pack chunks of whole lines, so that no event's name spans two chunks."""
    name, remainder = f'"{STEP_MARK}{unfinished_step}"'.encode(), f'"{_REMAINDER}"'.encode()
    pack: Any = igzip.IGzipFile  # it has no types
    with pack(None, "wb", _FAST, packed, 0) as target:  # without that time it asks a clock, perhaps the program's own
        for span in spans:
            for chunk in [span] if isinstance(span, bytes) else _chunks(*span):
                target.write(chunk if unfinished_step is None else chunk.replace(name, remainder))


def _chunks(file: IO[bytes], start: int, end: int, added: int) -> Iterator[bytes]:
    file.seek(start)
    while (left := end - file.tell()) > 0:
        chunk = file.read(min(_CHUNK_BYTES, left))
        whole = chunk + file.readline(max(0, left - len(chunk)))
        yield _IDS.sub(lambda found: found[1] + b"%d" % (int(found[2]) + added), whole) if added else whole
