"""The folder of a program, and copies of it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from profkit.core.errors import UsageError
from profkit.core.units import format_bytes
from profkit.diagnosis.fixing.arrays import Arrays, read_arrays

_LEFT_OUT = frozenset(
    (".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "node_modules", "__pycache__", ".mypy_cache",
     ".pytest_cache", ".ruff_cache", "traces", "wandb", "site-packages")
)  # fmt: skip
"""Folders that a program does not need to run, or that others made."""
MOST_BYTES = 512 << 20
"""Copied for every run, some dozen times: a second each on a common disk."""
MOST_FILES = 20_000
"""Opening as many takes seconds."""
MOST_TEXT = 1 << 20
"""A larger file that the program wrote is compared by its bytes only."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The folder that is copied, where in it the program runs, and what is not copied but linked."""

    root: Path
    working: Path
    linked: tuple[Path, ...] = ()

    def within(self, file: str) -> Path | None:
        """The path of a file relative to the root; None for one that is not copied."""
        path = Path(file)
        if not path.is_relative_to(self.root):
            return None
        relative = path.relative_to(self.root)
        is_left_out = bool(_LEFT_OUT.intersection(relative.parts[:-1]))
        is_linked = any(path.is_relative_to(link) for link in self.linked)
        return None if is_left_out or is_linked else relative


def tree_of(script: Path | None, working: Path, linked: tuple[Path, ...] = ()) -> Tree:
    """The folder to copy: the git repository around the program and the working folder if there is one, else the
    working folder, else that of the script. Raises `UsageError` if it is too large to copy for every run."""
    working = working.resolve()
    place = working if script is None else script.resolve().parent
    around = next((folder for folder in (place, *place.parents) if (folder / ".git").exists()), None)
    if around is not None and working.is_relative_to(around):
        root = around
    else:
        root = working if place.is_relative_to(working) else place
    tree = Tree(root, working if working.is_relative_to(root) else root, tuple(link.resolve() for link in linked))
    outside = [link for link in tree.linked if not link.is_relative_to(root) or link == root]
    if outside:
        raise UsageError(f"--link {outside[0]}: lies outside of {root}, so it is not copied anyway")
    _check_size(tree)
    return tree


def _check_size(tree: Tree) -> None:
    size = 0
    for number, path in enumerate(_files(tree.root, tree.linked), 1):
        size += path.lstat().st_size
        if size > MOST_BYTES or number > MOST_FILES:
            raise UsageError(
                f"{tree.root}: holds more than {format_bytes(MOST_BYTES)} or {MOST_FILES:,} files, too much to "
                "copy for every run; start in the program's own folder, or pass --link"
            )


def _files(root: Path, linked: tuple[Path, ...]) -> Iterator[Path]:
    """Everything that is copied and is no folder, in a fixed order."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and here / name not in linked)
        links = [name for name in folders if (here / name).is_symlink()]
        yield from (here / name for name in sorted([*files, *links]) if here / name not in linked)


def copy_tree(tree: Tree, target: Path, changed: Mapping[Path, bytes]) -> None:
    """Make a fresh copy at ``target`` with these files changed. Links keep pointing where they do; pipes and devices
    are left out."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in _files(tree.root, tree.linked):
        relative = path.relative_to(tree.root)
        copied = target / relative
        copied.parent.mkdir(parents=True, exist_ok=True)
        if relative in changed:
            copied.write_bytes(changed[relative])
            shutil.copymode(path, copied)
        elif path.is_symlink():
            copied.symlink_to(_pointed_to(path, tree.root))
        elif path.is_file():
            shutil.copy2(path, copied)
    for link in tree.linked:
        copied = target / link.relative_to(tree.root)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.symlink_to(link)


def _pointed_to(link: Path, root: Path) -> str:
    """A link to what is copied leads into the copy, even if it is absolute: the program may write through it. Others
    lead where they did."""
    aim, there = os.readlink(link), Path(os.path.realpath(link))  # of a loop too
    if not there.is_relative_to(root) or _LEFT_OUT.intersection(there.relative_to(root).parts):
        return str(there)
    return os.path.relpath(there, link.parent) if os.path.isabs(aim) else aim


@dataclass(frozen=True, slots=True)
class Written:
    """A file that the program wrote: its hash, its text if it is short and is one, and its arrays if it holds some."""

    digest: str
    text: str | None
    arrays: Arrays | None = None


def snapshot(root: Path) -> dict[Path, tuple[int, int]]:
    """The size and time of each file."""
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in _files(root, ())}


def written_since(root: Path, before: Mapping[Path, tuple[int, int]]) -> dict[str, Written]:
    """What was made or changed since, by its path in the tree."""
    changed = [path for path, seen in snapshot(root).items() if before.get(path) != seen and path.is_file()]
    return {path.relative_to(root).as_posix(): _read(path) for path in changed if path.suffix != ".pyc"}


def _read(path: Path) -> Written:
    digest = _digest(path)
    arrays = read_arrays(path)
    if arrays is not None:
        return Written(digest, None, arrays)
    if path.stat().st_size > MOST_TEXT:
        return Written(digest, None)
    try:
        return Written(digest, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return Written(digest, None)


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(MOST_TEXT):
            found.update(block)
    return found.hexdigest()
