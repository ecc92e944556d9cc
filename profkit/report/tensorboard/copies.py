"""Copies of traces that TensorBoard's "PyTorch Profiler" tab reads correctly.

The recordings stay unchanged. `profkit.report.tensorboard.rewriting` says how a copy differs, and why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip, isal_zlib

from profkit.derive.steps.steps import WHOLE_RECORDING
from profkit.diagnosing import read_facts
from profkit.errors import ProfkitError, RunDirectoryError, UnreadableInput
from profkit.report.json import load_json
from profkit.report.tensorboard.rewriting import Fields, Window, count_levels, rewrite_events
from profkit.report.tensorboard.scalars import PREFIX, write_scalars
from profkit.run import DIAGNOSIS_FILE, TRACE_SUFFIXES

_ANY_VERSION = ".profkit-tensorboard-"
PREPARED_FOLDER = f"{_ANY_VERSION}2"
"""Where the copies go inside the log directory. Raise the number when copies are written differently."""
MAX_BYTES = 1 << 30
"""The largest uncompressed trace that is copied. The plugin itself takes about ten times a trace's size in memory."""
MOST_LEVELS = 450
"""Levels of nested events. The plugin recurses, with up to two frames per level, and Python allows a thousand."""
_MARKER = ".gitignore"
_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSION_LEVEL = 1


class _TooDeep(Exception):
    """Nested so deep that the tab would show a traceback instead of the trace."""


def prepare_logdir(
    logdir: Path, prepared: Path, on_unreadable: Callable[[UnreadableInput], None] | None = None
) -> list[Path]:
    """Copy every trace below ``logdir`` into ``prepared``, a directory per run; return these directories, sorted.

    A copy as old as its trace is up to date. ``prepared`` belongs to profkit, so copies whose trace is gone are
    removed. Folders whose name starts with a dot are skipped. An unreadable trace raises `UnreadableInput`, or is
    passed to ``on_unreadable`` and left out.
    """
    if not logdir.is_dir():
        raise UnreadableInput(logdir, "no such directory")
    sources = list(_traces(logdir, prepared.resolve()))
    if not sources and not prepared.exists():
        return []
    _claim(prepared)
    copies: set[Path] = set()
    for source in sources:
        target = prepared / _run_of(source, logdir) / source.name
        try:
            if not target.is_file() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
                rewrite_trace(source, target)
        except UnreadableInput as error:
            if on_unreadable is None:
                raise
            on_unreadable(error)
        else:
            copies.add(target)
    runs = {copy.parent for copy in copies}
    for run, folder in {source.parent: prepared / _run_of(source, logdir) for source in sources}.items():
        copies |= _refresh_scalars(run, folder)
    _prune(prepared, copies)
    _prune_older(prepared)
    return sorted(runs)


def rewrite_trace(source: Path, target: Path) -> None:
    """Write the copy of a trace, packed if ``target`` ends in ``.gz``, as old as ``source``.

    Raises `UnreadableInput` for anything but a whole trace, and `RunDirectoryError` if the copy cannot be written.
    """
    text, steps = _read(source), _find_steps(source)
    try:
        copy = _rewrite(text, steps)
    except (msgspec.DecodeError, UnicodeDecodeError):
        copy = _rewrite_tolerant(source, text, steps)
    except _TooDeep as error:
        raise UnreadableInput(source, str(error)) from None
    if target.name.endswith(".gz"):
        copy = igzip.compress(copy, _COMPRESSION_LEVEL)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(copy)
        age = source.stat().st_mtime_ns
        os.utime(unfinished, ns=(age, age))
        unfinished.replace(target)
    except OSError as error:
        raise RunDirectoryError(target, f"cannot be written: {error.strerror or error}") from error


def _claim(prepared: Path) -> None:
    """Make ``prepared``, or check that profkit made it: only then may it remove copies there."""
    marker = prepared / _MARKER
    try:
        prepared.mkdir(parents=True, exist_ok=True)
        if not marker.exists():
            if any(prepared.iterdir()):
                raise RunDirectoryError(prepared, "holds files that profkit did not put there")
            marker.write_text("*\n", encoding="ascii")
    except OSError as error:
        raise RunDirectoryError(
            prepared, f"cannot be written: {error.strerror or error}; name another with --copies"
        ) from error


def _traces(logdir: Path, left_out: Path | None = None) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(logdir):
        subfolders[:] = sorted(
            name for name in subfolders if not name.startswith(".") and Path(folder, name).resolve() != left_out
        )
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(TRACE_SUFFIXES) and not name.startswith(".") and path.is_file():
                yield path


def _run_of(source: Path, logdir: Path) -> Path:
    run = source.parent.relative_to(logdir)
    return run if run.parts else Path(logdir.resolve().name or "run")


def _refresh_scalars(run: Path, folder: Path) -> set[Path]:
    """The event file of a run, as old as its diagnosis; none without a readable diagnosis."""
    path = run / DIAGNOSIS_FILE
    try:
        age_ns = path.stat().st_mtime_ns
        kept = {file for file in folder.glob(f"{PREFIX}*") if file.stat().st_mtime_ns == age_ns}
        if kept or not folder.is_dir():
            return kept
        written = write_scalars(load_json(path), folder, age_ns / 1e9)
        os.utime(written, ns=(age_ns, age_ns))
    except (OSError, UnreadableInput):
        return set()
    return {written}


def _prune(prepared: Path, copies: set[Path]) -> None:
    for path in [*_traces(prepared), *prepared.rglob(f"{PREFIX}*")]:
        if path not in copies:
            path.unlink()


def _prune_older(prepared: Path) -> None:
    """Remove the copies of an older profkit, which TensorBoard would show too."""
    if prepared.name == PREPARED_FOLDER:
        for older in prepared.parent.glob(f"{_ANY_VERSION}*"):
            if older != prepared and (older / _MARKER).is_file():
                _prune(older, set())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            stream = igzip.IGzipFile(fileobj=file, mode="rb") if zipped else file  # type: ignore[no-untyped-call] # isal
            text: bytes = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UnreadableInput(path, "no such file") from None
    except (OSError, EOFError, isal_zlib.error) as error:  # type: ignore[misc] # isal's stub calls the class an instance
        raise UnreadableInput(path, f"cannot be read: {error}") from error
    if len(text) > MAX_BYTES:
        raise UnreadableInput(path, f"is larger than {MAX_BYTES >> 20} MiB uncompressed")
    return text.removeprefix(b"\xef\xbb\xbf")


def _find_steps(source: Path) -> list[Window]:
    """The steps as profkit finds them. None if profkit cannot read the trace, or if the whole trace is one step: then
    the plugin finds its own."""
    try:
        facts = read_facts(source)
        steps = facts.steps
    except (ProfkitError, MemoryError):
        return []
    if steps.source == WHOLE_RECORDING:
        return []
    columns = steps.start_ns, steps.end_ns, steps.begun_ns, steps.measured, steps.located
    found = [Window(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    return [step.counted_from(-facts.trace.base_ns) for step in found]


def _rewrite(text: bytes, steps: Sequence[Window]) -> bytes:
    """Raises `msgspec.DecodeError` for anything but strict JSON of the right form."""
    if text.lstrip()[:1] == b"[":
        document: Fields = {"traceEvents": msgspec.Raw(text)}
    else:
        document = msgspec.json.decode(text, type=Fields)
        if "traceEvents" not in document:
            raise msgspec.ValidationError("it has no list `traceEvents`")
    events = msgspec.json.decode(document["traceEvents"], type=list[Fields])
    events = rewrite_events(events, [step.counted_from(_clock_base_ns(document)) for step in steps])
    if (levels := count_levels(events)) > MOST_LEVELS:
        raise _TooDeep(f"its events are nested {levels:,} deep, and torch-tb-profiler fails on more than {MOST_LEVELS}")
    return msgspec.json.encode({**document, "traceEvents": events})


def _clock_base_ns(document: Fields) -> int:
    try:
        return msgspec.json.decode(document["baseTimeNanoseconds"], type=int)
    except (KeyError, msgspec.DecodeError):
        return 0


def _rewrite_tolerant(path: Path, text: bytes, steps: Sequence[Window]) -> bytes:
    """The slow way, for names with control characters or stray bytes, which strict JSON forbids."""
    try:
        value: Any = json.loads(text.decode("utf-8", "replace"), strict=False)
        events = value if isinstance(value, list) else value["traceEvents"]
        whole = {} if isinstance(value, list) else value
        strict = {**whole, "traceEvents": [event for event in events if isinstance(event, dict)]}
        return _rewrite(json.dumps(strict).encode(), steps)
    except _TooDeep as error:
        raise UnreadableInput(path, str(error)) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableInput(path, f"is not a whole profiler trace: {error}") from None
