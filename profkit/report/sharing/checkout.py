"""A diagnosis of a recording from elsewhere, with the files where they lie here: by a prefix that the user names, or by
the longest end of a path that this folder has too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from profkit.core.errors import UsageError
from profkit.findings.values import Diagnosis

_MOST_BYTES = 1 << 22
"""A longer file is no source text that somebody wrote."""
_AROUND = 3
"""Lines before and after a finding's own, as `Location.within` shows them."""
PathMap = tuple[str, str]
"""The beginning of paths in the recording, and what it is here."""


def parse_path_map(text: str) -> PathMap:
    """``/app=src`` → ``("/app", "src")``. Raises `UsageError` for anything else."""
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        raise UsageError(f"--path-map {text}: give OLD=NEW, such as /app=. or /workspace/project=src")
    return _trimmed(old), _trimmed(new)


def map_paths(diagnosis: Diagnosis, maps: Sequence[PathMap]) -> Diagnosis:
    """The diagnosis with each file below one of the old folders below the new one, and with the source text of lines
    that the recording does not hold."""
    if not maps:
        return diagnosis
    value = msgspec.to_builtins(diagnosis)
    return msgspec.convert(_mapped(value, sorted(maps, key=lambda one: -len(one[0]))), Diagnosis)


def path_in_checkout(file: str, line: int, source: str) -> str:
    """The file relative to the working directory, as CI checks name files: if it lies below it, or else the longest end
    of its path that does, if the text of the line is the same or, where no text is known, a folder is part of it."""
    try:
        here = Path.cwd()
        return Path(file).relative_to(here).as_posix()
    except (ValueError, OSError):
        return _by_end(file, line, source.strip()) or file


def _trimmed(folder: str) -> str:
    return folder.rstrip("\\/") or folder


def _mapped(value: Any, maps: Sequence[PathMap]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_mapped(item, maps) for item in value]
    if not isinstance(value, dict):
        return value
    mapped = {key: _mapped(item, maps) for key, item in value.items()}
    if isinstance(value.get("file"), str):
        mapped["file"] = next((found for one in maps if (found := _moved(value["file"], one))), value["file"])
        if mapped["file"] != value["file"] and "function" in value and not value.get("source"):
            mapped |= _text_of(mapped["file"], value.get("line", 0))
    return mapped


def _moved(file: str, one: PathMap) -> str:
    old, new = one
    rest = file[len(old) :]
    if not file.startswith(old) or not (old.endswith(("/", "\\")) or rest.startswith(("/", "\\"))):
        return ""
    return f"{new}/" + re.sub(r"\\", "/", rest).lstrip("/")


def _text_of(file: str, line: int) -> dict[str, Any]:
    """The fields of a location that hold source text, as far as the file is here."""
    lines = _lines(Path(file))
    if not 0 < line <= len(lines):
        return {}
    first, last = max(line - _AROUND, 1), min(line + _AROUND, len(lines))
    return {"source": lines[line - 1].strip(), "around": lines[first - 1 : last], "around_from": first}


@lru_cache(maxsize=1024)
def _by_end(file: str, line: int, source: str) -> str:
    parts = [part for part in re.split(r"[\\/]", file) if part]
    if ".." in parts or not parts:
        return ""
    for at in range(len(parts)):
        path = Path(*parts[at:])
        if not path.is_absolute() and _is_file(path):
            lines = [text.strip() for text in _lines(path)] if source else []
            is_same = lines[line - 1 : line] == [source] if source else at < len(parts) - 1
            return path.as_posix() if is_same else ""
    return ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a null byte, or a name that is too long
        return False


def _lines(path: Path) -> list[str]:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return []
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []
