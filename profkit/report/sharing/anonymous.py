"""A diagnosis or a comparison without the folders above the project, without the names of users and hosts and, on
request, without source text.

Only the text decides what is a path or a name. A recording may come from another machine, so the file system is not
asked.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from profkit.diagnosis.compare.comparison import Comparison
from profkit.findings.values import Diagnosis

_MARKS = (".git", "pyproject.toml", "setup.py")
"""They mark the top folder of a project."""
_LIBRARY = re.compile(r".*[\\/](?:site|dist)-packages[\\/]")
_SEGMENT = r"""[^\s/'"`,;:()<>|*?\[\]{}]+"""
_POSIX = rf"(?<![\w./~)\]>-])(?:file://)?/(?:{_SEGMENT}/)+(?:{_SEGMENT})?"
_WINDOWS = r"""(?<!\w)(?:[A-Za-z]:[\\/]|\\\\[^\s\\/'"]+\\)[^:*?"'<>|\r\n]*"""
_PATH = re.compile(f"{_POSIX}|{_WINDOWS}")
_QUOTED = re.compile(r"""(?<=['"])/(?=[\w.-]+['"])""")
"""The slash of a quoted path with one part, such as ``'/data'``."""
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:[\\/]Users[\\/])([^/\\\s'\":]+)")
_TRACE_OF_HOST = re.compile(r"^(.+)_\d+\.\d+\.pt\.trace\.json")
"""The name of a trace begins with its host's, as torch-tb-profiler expects."""
_NOBODYS = frozenset(
    ("admin", "app", "docker", "jovyan", "localhost", "root", "runner", "ubuntu", "user", "users", "vm")
)
"""Names that identify nobody, and that are ordinary words too."""
_OURS = frozenset(("rule", "schema", "kind", "severity", "precision", "levels"))
"""Fields with profkit's own words; rows of columns look like paths."""
_SOURCE_COMPARED: dict[str, Any] = {"source": "", "around": []}
"""The fields of a comparison that hold source text, and what replaces it."""
_SOURCE: dict[str, Any] = {**_SOURCE_COMPARED, "change": None}
"""Those of a diagnosis. In a comparison, changes are numbers."""
Shown = TypeVar("Shown", Diagnosis, Comparison)


def share(shown: Shown, roots: Iterable[Path] = (), names: Iterable[str] = ()) -> Shown:
    """``shown`` with paths relative to the ``roots`` that hold them and only the names of other files, without
    ``names`` and without the names of users and hosts that it shows."""
    value: dict[str, Any] = msgspec.to_builtins(shown)
    shorten = _shorten_in(value, _recordings_of(shown), roots, {*names, *_hosts_of(shown)})
    for finding in value["findings"]:  # a line that is no longer in the text is no fix
        change = finding.get("change")
        if change and any(shorten(change[text]) != change[text] for text in ("before", "after")):
            finding["change"] = None
    return msgspec.convert(_mapped(value, shorten, {}), type(shown))


def without_source(shown: Shown) -> Shown:
    """``shown`` without lines of the program. Messages stay, although they name variables."""
    value: dict[str, Any] = msgspec.to_builtins(shown)
    if isinstance(shown, Comparison):
        value["lines"] = [move | {"name": ""} for move in value["lines"]]
        return msgspec.convert(_mapped(value, str, _SOURCE_COMPARED), type(shown))
    return msgspec.convert(_mapped(value, str, _SOURCE), type(shown))


def _recordings_of(shown: Diagnosis | Comparison) -> tuple[list[str], list[str]]:
    """The files or directories that were read, and the words of the commands."""
    if isinstance(shown, Diagnosis):
        return [*shown.run.files.values()], [*shown.run.command]
    return [*shown.before.paths, *shown.after.paths], [*shown.before.command, *shown.after.command]


def _hosts_of(shown: Diagnosis | Comparison) -> set[str]:
    """The hosts that a launch ran on."""
    launch = shown.launch if isinstance(shown, Diagnosis) else None
    return {one.host for one in launch.ranks} if launch is not None else set()


def _shorten_in(
    value: Any, read: tuple[list[str], list[str]], roots: Iterable[Path], names: Iterable[str]
) -> Callable[[str], str]:
    """The function that shortens the texts in ``value``."""
    recordings, commands = read
    of_homes = {name for text in _texts(value) for name in _HOME.findall(text)}
    of_hosts = {name for path in recordings for name in _TRACE_OF_HOST.findall(re.split(r"[\\/]", path)[-1])}
    paths = {path for path in (*recordings, *commands, *_files(value)) if _is_path(path)}
    return _shortener([str(root) for root in roots], {*names, *of_homes, *of_hosts}, paths)


def names_of_this_machine() -> list[str]:
    """The names of the user and the host."""
    import getpass

    host = platform.node()
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user, as in some containers
        user = ""
    return [user, Path.home().name, host, host.partition(".")[0]]


def project_of(path: Path) -> Path:
    """The top folder of the project around a file or folder; without a mark, its own folder."""
    folder = path.absolute() if path.is_dir() else path.absolute().parent
    return next((one for one in (folder, *folder.parents) if any((one / mark).exists() for mark in _MARKS)), folder)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from () if key in _OURS else _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _mapped(value: Any, change: Callable[[str], str], emptied: dict[str, Any]) -> Any:
    """``value`` with each text changed, and with the fields in ``emptied`` replaced."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            key: item if key in _OURS else emptied[key] if key in emptied else _mapped(item, change, emptied)
            for key, item in value.items()
        }
    return [_mapped(item, change, emptied) for item in value] if isinstance(value, (list, tuple)) else value


def _files(value: Any) -> Iterator[str]:
    """The files of all locations."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (item,) if key == "file" and isinstance(item, str) else _files(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _files(item)


def _shortener(roots: Sequence[str], names: Iterable[str], paths: Iterable[str]) -> Callable[[str], str]:
    """The function that shortens a text. The ``paths`` may contain blanks, so they are replaced literally; any other
    path ends at a blank."""
    inside = [re.split(r"[\\/]$", root)[0] for root in sorted(roots, key=len, reverse=True) if len(root) > 1]
    whole = {path: _short(path, inside) for path in paths}
    known = sorted(whole, key=len, reverse=True)
    hidden = sorted({one for one in names if len(one) > 1 and one.lower() not in _NOBODYS}, key=len, reverse=True)
    words = re.compile("|".join(rf"(?<![^\W_]){re.escape(one)}(?![^\W_])" for one in hidden) or r"(?!)", re.IGNORECASE)

    def shorten(text: str) -> str:
        for path in known:
            text = text.replace(path, whole[path])
        text = _PATH.sub(lambda found: _short(found[0], inside), text)
        return words.sub("…", _QUOTED.sub("", text))

    return shorten


def _is_path(text: str) -> bool:
    return re.match(r"/[^/\s]|[A-Za-z]:[\\/]|\\\\", text) is not None and "\n" not in text


def _short(path: str, roots: Iterable[str]) -> str:
    """``models/net.py`` below a root or ``site-packages``; otherwise only the file's name."""
    path = path.removeprefix("file://")
    for root in roots:
        if path.startswith((f"{root}/", f"{root}\\")):
            return path[len(root) + 1 :]
    if (library := _LIBRARY.match(path)) is not None:
        return path[library.end() :]
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1]
