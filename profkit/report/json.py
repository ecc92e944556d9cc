"""``diagnosis.json``: write it and read it back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from profkit.core.errors import UnreadableInput
from profkit.core.files.decoding import DAMAGE, decode_own
from profkit.core.files.reading import read_file
from profkit.findings.values import SCHEMA, Diagnosis
from profkit.run.directory import DIAGNOSIS_FILE

MAX_BYTES = 64 << 20
"""The largest ``diagnosis.json`` that is read; a finding takes about a kilobyte."""
_MOST_BITS = 512
"""Of a number: sums and products of what is recorded may take more than 64."""
_KEY = '\n  "{}": {}'
"""Unique in the text, because line breaks inside values are escaped."""


def render_json(diagnosis: Diagnosis) -> str:
    """The diagnosis as indented JSON, with each of the keys that hold thousands of numbers (``memory``, ``pictures``,
    ``launch``) on a single line."""
    text = to_json(replace(diagnosis, memory=(), pictures=None, launch=None))
    lines = (
        ("memory", "[]", diagnosis.memory),
        ("pictures", "null", diagnosis.pictures),
        ("launch", "null", diagnosis.launch),
    )
    for key, nothing, value in lines:
        line = msgspec.json.encode(_encodable(msgspec.to_builtins(value))).decode()
        text = text.replace(_KEY.format(key, nothing), _KEY.format(key, line), 1)
    return text


def to_json(value: object) -> str:
    """One of profkit's values as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(_encodable(msgspec.to_builtins(value))), indent=2).decode() + "\n"


def _encodable(value: Any) -> Any:
    """``value`` without what JSON cannot hold: lone surrogates in file names, NaN in evidence."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, (list, tuple)) else value


def load_json(path: Path, within: Path | None = None) -> Diagnosis:
    """The diagnosis in a file; given ``within``, links out of that directory are not followed. Raises `UnreadableInput`
    if it cannot be read, or as `parse_json` does."""
    try:
        return parse_json(read_file(path, MAX_BYTES, within), path)
    except FileNotFoundError as error:
        raise UnreadableInput(path, f"cannot be read: {error.strerror or error}") from error


def load_run_json(directory: Path) -> Diagnosis:
    """The diagnosis in a run directory. Raises as `load_json` does."""
    return load_json(directory / DIAGNOSIS_FILE, directory)


def parse_json(data: bytes, path: Path | str = "diagnosis.json") -> Diagnosis:
    """The diagnosis that `render_json` wrote. Unknown keys are ignored.

    Raises `UnreadableInput`, naming ``path``, if ``data`` is too large, not a diagnosis or of another schema.
    """
    if len(data) > MAX_BYTES:
        raise UnreadableInput(path, f"is larger than {MAX_BYTES >> 20} MiB")
    try:
        diagnosis = decode_own(data, Diagnosis, _MOST_BITS)
    except DAMAGE as error:
        raise UnreadableInput(path, f"is not a diagnosis that profkit wrote: {error}") from error
    if diagnosis.schema != SCHEMA:
        raise UnreadableInput(path, f"has the schema {diagnosis.schema!r:.80}; this profkit reads {SCHEMA!r}")
    for what, lengths in _lengths(diagnosis):
        if len(set(lengths)) > 1:
            listed = " and ".join(map(str, sorted(set(lengths))))
            raise UnreadableInput(path, f"is not a diagnosis that profkit wrote: {what} have {listed} entries")
    return diagnosis


def _lengths(diagnosis: Diagnosis) -> Iterator[tuple[str, list[int]]]:
    """The lengths of what is read side by side: reports take an entry of each for the same moment, step or part."""
    for device in diagnosis.memory:
        if (line := device.timeline) is not None:
            columns = (line.entries, line.reserved_bytes, *(part.bytes for part in line.parts))
            yield "the columns of a memory timeline", [len(column) for column in columns]
    if (pictures := diagnosis.pictures) is not None:
        parts = [len(step.parts) for step in pictures.steps]
        yield "the parts of the steps", [*parts, *([len(pictures.parts)] if parts else [])]
    if diagnosis.launch is not None and (ranks := diagnosis.launch.picture) is not None:
        rows = [len(text) for row in (*ranks.rows, *ranks.singled_out) for text in (row.caused, row.waited)]
        yield "the columns of the ranks", [len(ranks.steps), *rows]
