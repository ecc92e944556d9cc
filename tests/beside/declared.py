"""The adversarial programs, and what each declares about itself.

A program is a file with a docstring of one line. Comments of the form ``# beside: KEY VALUE`` say how it is started:

- ``arguments A B``: its command line
- ``stdin TEXT``: what it reads; by default nothing
- ``status N``: how it ends bare, if not with 0; of a signal -N
- ``start KIND``: one of `STARTS`; by default as a script
- ``mount KIND``: a small file system, ``full`` or ``read-only``, is its working directory; ``run-scarce`` and
  ``run-read-only``: profkit's run directory, with a few kilobytes left or none
- ``environment NAME=VALUE``: a variable of its environment
- ``skip MODE: REASON``: it cannot be compared in this mode
- ``needs MODULE`` or ``needs MODULE.ATTRIBUTE``: it is skipped where that is absent
- ``mask PATTERN``: what differs between any two runs of it
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"
STARTS = {
    "script": "python PROGRAM.py",
    "module": "python -m PROGRAM",
    "package": "python -m PACKAGE, which has a __main__.py",
    "zipped": "python -m PACKAGE, from an archive on the path",
    "zipapp": "python PROGRAM.pyz",
    "code": "python -c TEXT",
    "text": "python -, with the text on stdin",
    "no-stdin": "with descriptor 0 closed",
    "no-stdout": "with descriptor 1 closed",
    "no-stderr": "with descriptor 2 closed",
    "broken-pipe": "with an output that nobody reads",
    "no-home": "without HOME",
    "deleted": "in a directory that no longer exists",
}
AS_MODULES = ("module", "package", "zipped")
NO_TARGETS = {
    "zipapp": "profkit records scripts and modules: an archive is no target",
    "code": "profkit records scripts and modules: code on the command line is no target",
    "text": "profkit records scripts and modules: a script on stdin is no target",
}
"""Starts that the command line does not know, so that only a profile is compared."""
_KEYS = ("start", "arguments", "stdin", "status", "mount", "environment", "skip", "mask", "needs")
_DECLARED = re.compile(r"(?m)^# beside: (\S+) ?(.*)$")


@dataclass(frozen=True)
class Program:
    path: Path
    says: str
    """Its docstring."""
    start: str = "script"
    arguments: tuple[str, ...] = ()
    stdin: str = ""
    status: int = 0
    mount: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    masks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    skips: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem

    def absence(self) -> str:
        """Why it cannot run here, if so."""
        return next((f"{need} is not here" for need in self.needs if not _is_here(need)), "")


def programs() -> list[Program]:
    return [read(path) for path in sorted(FOLDER.glob("[!_]*.py"))]


def read(path: Path) -> Program:
    """The program with its declarations. Raises `ValueError` for one that nobody knows."""
    text = path.read_text(encoding="utf-8")
    says = ast.get_docstring(ast.parse(text)) or ""
    if not says or "\n" in says:
        raise ValueError(f"{path}: a docstring of one line says what the program does")
    rows = [(key, value.strip()) for key, value in _DECLARED.findall(text)]
    if unknown := {key for key, _ in rows} - set(_KEYS):
        raise ValueError(f"{path}: nobody knows what {', '.join(sorted(unknown))} means")
    one = dict(rows)
    start = one.get("start", "script")
    if start not in STARTS:
        raise ValueError(f"{path}: nobody knows how to start it as {start}")
    skips = dict.fromkeys(("record", "diagnose"), NO_TARGETS[start]) if start in NO_TARGETS else {}
    for value in (value for key, value in rows if key == "skip"):
        mode, _, reason = value.partition(": ")
        skips[mode] = reason
    return Program(
        path,
        says,
        start,
        tuple(one.get("arguments", "").split()),
        one.get("stdin", "").encode().decode("unicode_escape"),
        int(one.get("status", "0")),
        one.get("mount", ""),
        dict(value.split("=", 1) for key, value in rows if key == "environment"),
        tuple(value for key, value in rows if key == "mask"),
        tuple(value for key, value in rows if key == "needs"),
        skips,
    )


@cache
def _is_here(need: str) -> bool:
    module, _, attribute = need.partition(".")
    if importlib.util.find_spec(module) is None:
        return False
    return not attribute or hasattr(importlib.import_module(module), attribute)
