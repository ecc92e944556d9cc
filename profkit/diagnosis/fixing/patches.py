"""The changes of a program as a patch, and writing them into its files."""

from __future__ import annotations

import difflib
import os
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from profkit.core.errors import UsageError

_GIT_S = 30
"""A status takes a second in the largest repositories."""


def unified_diff(root: Path, changed: Mapping[Path, bytes]) -> bytes:
    """A patch of these files, as ``git apply`` and ``patch -p1`` take it, in the bytes of the files."""
    return b"".join(diff_of(name, (root / name).read_bytes(), after) for name, after in sorted(changed.items()))


def diff_of(name: Path, before: bytes, after: bytes) -> bytes:
    """The patch of one file."""
    old, new = (_lines(raw) for raw in (before, after))
    path = name.as_posix().encode("utf-8", "surrogateescape")
    lines = difflib.diff_bytes(difflib.unified_diff, old, new, b"a/" + path, b"b/" + path, lineterm=b"\n")
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def _lines(raw: bytes) -> list[bytes]:
    """Split at line feeds only, as patches are."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]] + (
        [raw.split(b"\n")[-1]] if not raw.endswith(b"\n") else []
    )


def line_after(before: bytes, after: bytes, line: int) -> int | None:
    """Where a line of ``before`` is in ``after``; None if it was changed or removed."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for block in matcher.get_matching_blocks():
        if block.a < line <= block.a + block.size:
            return line - block.a + block.b
    return None


def refuse_dirty(root: Path) -> None:
    """Raise `UsageError` if the folder is in a git repository with changes that are not committed."""
    command = ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"]
    try:
        found = subprocess.run(  # noqa: S603  # a fixed command
            command, capture_output=True, text=True, check=False, timeout=_GIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    changes = [line[3:] for line in found.stdout.splitlines()]
    if found.returncode == 0 and changes:
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        raise UsageError(f"{changes[0]}{more}: changed and not committed; commit first, or give --allow-dirty")


def write_files(root: Path, before: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> None:
    """Put the changed files in place of the old ones, all or none, also if this is interrupted. Raises `UsageError` if
    one has changed meanwhile, or may not be written to."""
    for name in after:
        if (root / name).read_bytes() != before[name]:
            raise UsageError(f"{root / name}: changed while profkit was measuring; nothing was written")
        if not (root / name).stat().st_mode & stat.S_IWUSR:  # it could be replaced all the same
            raise UsageError(f"{root / name}: is read-only; nothing was written, --diff FILE keeps the patch")
    ready: dict[Path, Path] = {}
    try:
        for name in after:
            ready[name] = _beside((root / name).resolve(), after[name])
        _replace_all(root, ready, before)
    finally:
        for path in ready.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _replace_all(root: Path, ready: Mapping[Path, Path], before: Mapping[Path, bytes]) -> None:
    begun: list[Path] = []
    try:
        for name, new in ready.items():
            begun.append(name)
            os.replace(new, (root / name).resolve())
    except BaseException:
        for name in begun:
            if (root / name).read_bytes() != before[name]:
                place = (root / name).resolve()
                os.replace(_beside(place, before[name]), place)
        raise


def _beside(path: Path, content: bytes) -> Path:
    """A new file in the same folder, with the mode of the old one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    new = Path(name)
    new.chmod(path.stat().st_mode & 0o7777)
    return new
