"""Ends of a program after which no Python code of it runs: ``os._exit``, and ``os.exec*``, which puts another program
into its process.

Each is replaced by a function that first writes the recording. Forked processes and, for ``os._exit``, other threads
are left alone, as they cannot end the recording. A program that starts itself anew, for instance with another
environment (``os.execv(sys.executable, [sys.executable, *sys.argv])``), is recorded anew in place of what it was.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from profkit.run.directory import REPLACED_ITSELF

_TAKES_VALUE = "WX"
"""Python's options with a value: ``-W ignore`` or ``-Wignore``."""
_FLAGS = "bBdiOPqRsuvx"
"""Python's options without a value, but those that change where it looks for modules (``-E``, ``-I``, ``-S``)."""
_PLACES = ("PYTHONHOME", "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONNOUSERSITE")
"""Variables that decide where Python finds profkit."""


class EndingProgram(Protocol):
    """The recorded program, as far as its end matters here. ``has_steps`` says whether steps of it were recorded."""

    @property
    def has_steps(self) -> bool: ...

    def finish(self, status: int | None, note: str | None = None) -> None:
        """It ends with this status, None if that is not known yet."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """How Python is asked to run a script or, if it ``is_module``, a module."""

    flags: tuple[str, ...]
    is_module: bool
    target: str
    arguments: tuple[str, ...]


def catch_unusual_ends(program: EndingProgram, record: Sequence[str]) -> None:
    """Watch for such ends in this process. ``record`` are Python's arguments that record what follows after ``--``."""
    _catch_exit(program)
    for name in ("execv", "execve"):  # the others call these two
        if hasattr(os, name):
            setattr(os, name, _before_exec(getattr(os, name), program, tuple(record)))


def _catch_exit(program: EndingProgram) -> None:
    leave, process, thread = os._exit, os.getpid(), threading.get_ident()

    @functools.wraps(leave)
    def finish_and_leave(status: int) -> NoReturn:
        if isinstance(status, int) and (os.getpid(), threading.get_ident()) == (process, thread):
            program.finish(status & 0xFF, "the program ended by os._exit")
        leave(status)

    os._exit = finish_and_leave


def _before_exec(execute: Callable[..., Any], program: EndingProgram, record: tuple[str, ...]) -> Callable[..., Any]:
    process, places = os.getpid(), _places_in(os.environ)

    @functools.wraps(execute)
    def finish_and_execute(path: Any, argv: Any, *environment: Any) -> Any:
        if os.getpid() != process or not _may_succeed(path, argv):
            return execute(path, argv, *environment)
        given = [os.fsdecode(one) for one in argv]
        again = read_invocation(given[1:]) if _is_this_python(path) and not program.has_steps else None
        if again is None or _places_in(environment[0] if environment else os.environ) != places:
            program.finish(None, f"{REPLACED_ITSELF} ({os.path.basename(os.fsdecode(path))})")
            return execute(path, argv, *environment)
        kind = ["--module"] if again.is_module else []
        return execute(
            path, [given[0], *again.flags, *record, *kind, "--", again.target, *again.arguments], *environment
        )

    return finish_and_execute


def read_invocation(arguments: Sequence[str]) -> Invocation | None:
    """What Python runs with these arguments; None if that is no script and no module, or profkit may not be found."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        letters = arguments[at][1:]
        if letters == "m":
            rest = arguments[at + 1 :]
            return Invocation(tuple(arguments[:at]), True, rest[0], tuple(rest[1:])) if rest else None
        if letters[:1] and letters[0] in _TAKES_VALUE:
            at += 1 if len(letters) > 1 else 2
        elif letters and set(letters) <= set(_FLAGS):
            at += 1
        else:
            return None
    script = arguments[at] if at < len(arguments) else "-"
    if script == "-" or not os.path.isfile(script):  # standard input, or a folder or an archive with a program
        return None
    return Invocation(tuple(arguments[:at]), False, script, tuple(arguments[at + 1 :]))


def _may_succeed(path: Any, argv: Any) -> bool:
    """Whether there is a file to run: ``os.execvp`` tries one folder after another."""
    try:
        return bool(argv) and os.path.isfile(path) and os.access(path, os.X_OK)
    except (TypeError, ValueError):
        return False


def _is_this_python(path: Any) -> bool:
    try:
        return os.path.samefile(path, sys.executable)
    except OSError:
        return False


def _places_in(environment: Mapping[Any, Any]) -> list[str | None]:
    found = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    return [found.get(name) for name in _PLACES]
