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

from profkit.core.errors import ProfkitError, RunDirectoryError, UnreadableInput
from profkit.core.files.kinds import is_own_file
from profkit.core.files.reading import open_file, read_file
from profkit.core.files.writing import make_folder, replacing, write_file
from profkit.derive.steps.boundaries import UNDIVIDED
from profkit.diagnosis.pipeline import read_facts
from profkit.report.json import load_run_json
from profkit.report.tensorboard.rewriting import Fields, Window, count_levels, rewrite_events
from profkit.report.tensorboard.scalars import PREFIX, write_scalars
from profkit.run.directory import DIAGNOSIS_FILE, TRACE_SUFFIXES

_ANY_VERSION = ".profkit-tensorboard-"
PREPARED_FOLDER = f"{_ANY_VERSION}2"
"""Where the copies go inside the log directory. Raise the number when copies are written differently."""
MAX_BYTES = 1 << 30
"""The largest uncompressed trace that is copied. The plugin itself takes about ten times a trace's size in memory."""
MOST_LEVELS = 450
"""Levels of nested events. The plugin recurses, with up to two frames per level, and Python allows a thousand."""
_MARKER, _MARK = ".gitignore", b"*\n"
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
    sources = [path for path in _traces(logdir, prepared.resolve()) if is_own_file(path, path.parent)]
    if not sources and not prepared.exists():
        return []
    _claim(prepared)
    copies: set[Path] = set()
    for source in sources:
        target = _folder_of(_run_of(source, logdir), prepared) / source.name
        try:
            if not is_own_file(target, prepared) or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
                rewrite_trace(source, target)
        except UnreadableInput as error:
            if on_unreadable is None:
                raise
            on_unreadable(error)
        else:
            copies.add(target)
    runs = {copy.parent for copy in copies}
    for run, folder in {source.parent: prepared / _run_of(source, logdir) for source in sources}.items():
        copies |= _refresh_scalars(run, folder, prepared)
    _prune(prepared, copies)
    _prune_older(prepared)
    return sorted(runs)


def rewrite_trace(source: Path, target: Path) -> None:
    """Write the copy of a trace, packed if ``target`` ends in ``.gz``, as old as ``source``.

    Raises `UnreadableInput` for anything but a whole trace, and `RunDirectoryError` if the copy cannot be written.
    """
    text, age_ns = _read(source)
    steps = _find_steps(source)
    try:
        copy = _rewrite_any(text, steps)
    except _TooDeep as error:
        raise UnreadableInput(source, str(error)) from None
    except RecursionError:
        raise UnreadableInput(source, "is not whole JSON: nested too deeply") from None
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise UnreadableInput(source, f"is not a whole profiler trace: {error}") from None
    if target.name.endswith(".gz"):
        copy = igzip.compress(copy, _COMPRESSION_LEVEL)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target.parent, target.name, age_ns) as file:
            file.write(copy)
    except OSError as error:
        raise RunDirectoryError(target, f"cannot be written: {error.strerror or error}") from error


def _claim(prepared: Path) -> None:
    """Make ``prepared``, or check that profkit made it: only then may it remove copies there."""
    try:
        prepared.mkdir(parents=True, exist_ok=True)
        if _is_foreign_link(prepared):
            raise RunDirectoryError(prepared, "is a link, which profkit did not make; name another with --copies")
        if not _is_claimed(prepared):
            if any(prepared.iterdir()):
                raise RunDirectoryError(prepared, "holds files that profkit did not put there")
            write_file(prepared, _MARKER, _MARK)
    except OSError as error:
        raise RunDirectoryError(
            prepared, f"cannot be written: {error.strerror or error}; name another with --copies"
        ) from error


def _is_foreign_link(prepared: Path) -> bool:
    """Whether it is a link in the log directory, where a received archive may have put it. The user's own may be."""
    return prepared.name.startswith(_ANY_VERSION) and prepared.is_symlink()


def _is_claimed(prepared: Path) -> bool:
    """Whether profkit's mark is there: any git repository has a file of that name, but hardly this content."""
    try:
        return read_file(prepared / _MARKER, 1 << 10, prepared) == _MARK
    except (FileNotFoundError, UnreadableInput):
        return False


def _folder_of(run: Path, prepared: Path) -> Path:
    try:
        return make_folder(prepared, str(run))
    except OSError as error:
        raise RunDirectoryError(prepared / run, f"cannot be written: {error.strerror or error}") from error


def _traces(logdir: Path, left_out: Path | None = None) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(logdir):
        subfolders[:] = sorted(
            name for name in subfolders if not name.startswith(".") and Path(folder, name).resolve() != left_out
        )
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(TRACE_SUFFIXES) and not name.startswith("."):
                yield path


def _run_of(source: Path, logdir: Path) -> Path:
    run = source.parent.relative_to(logdir)
    return run if run.parts else Path(logdir.resolve().name or "run")


def _refresh_scalars(run: Path, folder: Path, prepared: Path) -> set[Path]:
    """The event file of a run, as old as its diagnosis; none without a readable diagnosis."""
    path = run / DIAGNOSIS_FILE
    try:
        age_ns = path.stat().st_mtime_ns
        there = [file for file in folder.glob(f"{PREFIX}*") if is_own_file(file, prepared)]
        kept = {file for file in there if file.stat().st_mtime_ns == age_ns}
        if kept or not folder.is_dir():
            return kept
        written = write_scalars(load_run_json(run), folder, age_ns / 1e9)
        os.utime(written, ns=(age_ns, age_ns))
    except (OSError, UnreadableInput):
        return set()
    return {written}


def _prune(prepared: Path, copies: set[Path]) -> None:
    for path in [*_traces(prepared), *prepared.rglob(f"{PREFIX}*")]:
        if path not in copies and (path.is_symlink() or not path.is_dir()):
            path.unlink()


def _prune_older(prepared: Path) -> None:
    """Remove the copies of an older profkit, which TensorBoard would show too."""
    if prepared.name == PREPARED_FOLDER:
        for older in prepared.parent.glob(f"{_ANY_VERSION}*"):
            if older != prepared and not _is_foreign_link(older) and _is_claimed(older):
                _prune(older, set())


def _read(path: Path) -> tuple[bytes, int]:
    """The text of a trace, and when it last changed."""
    try:
        with open_file(path, path.parent) as file:
            zipped = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            stream = igzip.IGzipFile(fileobj=file, mode="rb") if zipped else file  # type: ignore[no-untyped-call] # isal
            text: bytes = stream.read(MAX_BYTES + 1)
            age_ns = os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        raise UnreadableInput(path, "no such file") from None
    except (OSError, EOFError, isal_zlib.error) as error:  # type: ignore[misc] # isal's stub calls the class an instance
        raise UnreadableInput(path, f"cannot be read: {error}") from error
    if len(text) > MAX_BYTES:
        raise UnreadableInput(path, f"is larger than {MAX_BYTES >> 20} MiB uncompressed")
    return text.removeprefix(b"\xef\xbb\xbf"), age_ns


def _find_steps(source: Path) -> list[Window]:
    """The steps as profkit finds them. None if profkit cannot read the trace, or if the whole trace is one step: then
    the plugin finds its own."""
    try:
        facts = read_facts(source)
        steps = facts.steps
    except (ProfkitError, MemoryError):
        return []
    if steps.source in UNDIVIDED:
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


def _rewrite_any(text: bytes, steps: Sequence[Window]) -> bytes:
    """Raises what the decoders do for anything but a trace, and `RecursionError` for one that is nested too deeply."""
    try:
        return _rewrite(text, steps)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _rewrite_tolerant(text, steps)


def _rewrite_tolerant(text: bytes, steps: Sequence[Window]) -> bytes:
    """The slow way, for names with control characters or stray bytes, which strict JSON forbids."""
    value: Any = json.loads(text.decode("utf-8", "replace"), strict=False)
    events = value if isinstance(value, list) else value["traceEvents"]
    whole = {} if isinstance(value, list) else value
    strict = {**whole, "traceEvents": [event for event in events if isinstance(event, dict)]}
    return _rewrite(json.dumps(strict).encode(), steps)
