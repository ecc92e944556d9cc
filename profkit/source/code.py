"""Where code comes from: its file, its function's name, and the text of a line."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType
from typing import Any

from profkit.source.attributes import attributes_of

PROFKIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder of profkit's own code."""
_MOST_FILE_BYTES = 1 << 20
_LINES_AROUND = 3
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
MOST_SOURCE = 200
"""Characters kept of a line."""


def source_file(code: CodeType) -> str:
    """The absolute path of the file; a name in angle brackets, as of a prompt or a notebook, stays as it is.

    The main program's code may have the name from the command line, relative to a working directory that the program
    has left since: ``__main__`` knows the whole path.
    """
    name = code.co_filename
    if name.startswith("<") or os.path.isabs(name):
        return name if name.startswith("<") else os.path.abspath(name)
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    is_the_programs = isinstance(program, str) and os.path.isabs(program) and program.endswith(f"{os.sep}{name}")
    return os.path.abspath(str(program) if is_the_programs else name)


def module_names(name: str) -> dict[str, Any]:
    """What a loaded module defines, empty if there is none of that name.

    A lazy module (``importlib.util.LazyLoader``, SpeechBrain's) imports what it stands for once an attribute is read.
    """
    return attributes_of(sys.modules.get(name))


def function_name(code: CodeType) -> str:
    """The qualified name if Python has it (3.11); a comprehension belongs to the function around it."""
    return around_comprehension(getattr(code, "co_qualname", code.co_name))


def around_comprehension(name: str) -> str:
    """The function that a qualified name belongs to: of a comprehension the one around it."""
    around, _, last = name.rpartition(".<locals>.")
    return (around or "<module>") if last in _COMPREHENSIONS else name


def source_line(file: str, line: int) -> str:
    """The text of the line without its indentation, cut if very long; empty if there is none."""
    return linecache.getline(file, line).strip()[:MOST_SOURCE]


def recorded_line(file: str, line: int) -> str:
    """`source_line` for a place that a recording names. A recording may come from anybody and from another machine, so
    the file must be a Python file of ordinary size; else the text is empty."""
    path = Path(file)
    try:
        is_known = path.is_absolute() and path.suffix == ".py" and path.is_file()
        return source_line(file, line) if is_known and path.stat().st_size <= _MOST_FILE_BYTES else ""
    except (OSError, ValueError):  # a null byte, or a name that is too long
        return ""


def lines_around(places: Iterable[tuple[str, int]]) -> dict[str, dict[int, str]]:
    """Each line with the few lines before and after it, by file and number, as they are in the file."""
    found: dict[str, dict[int, str]] = {}
    for file, line in places:
        lines = linecache.getlines(file)
        numbers = range(max(line - _LINES_AROUND, 1), min(line + _LINES_AROUND, len(lines)) + 1)
        found.setdefault(file, {}).update((number, lines[number - 1].rstrip()[:MOST_SOURCE]) for number in numbers)
    return {file: lines for file, lines in found.items() if lines}
