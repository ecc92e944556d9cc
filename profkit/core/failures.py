"""Unforeseen exceptions: the report leaves out the part that failed, and one line says what to report.

With `STRICT`, which profkit's own tests set, the exception is raised instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

STRICT = "PROFKIT_STRICT"
"""The environment variable that, set to 1, lets such exceptions through."""
OWN_ERROR = "failed inside profkit"
"""Tells a failure from a rule that merely abstained."""
_PACKAGE = Path(__file__).parents[1]
Value = TypeVar("Value")
Other = TypeVar("Other")


def attempt(what: str, do: Callable[[], Value], otherwise: Other) -> tuple[Value | Other, tuple[str, ...]]:
    """What ``do`` returns. If it fails: ``otherwise``, and a note that names ``what`` failed."""
    try:
        return do(), ()
    except Exception as error:  # one failing part must not cost the user the others
        return otherwise, (f"{what} {describe_failure(error)}",)


def describe_failure(error: Exception) -> str:
    """``failed inside profkit (ValueError at derive/facts.py:62), please report it``; raises the error if strict."""
    if is_strict():
        raise error
    return f"{OWN_ERROR} ({type(error).__name__} at {place_of(error)}), please report it"


def is_strict() -> bool:
    return os.environ.get(STRICT) == "1"


def place_of(error: BaseException) -> str:
    """The last line of profkit's that the exception passed through: file within the package, and line."""
    import traceback  # rarely needed, and the command line starts with this module

    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if _PACKAGE in Path(frame.filename).parents]
    if not inside:
        return "an unknown line"
    return f"{Path(inside[-1].filename).relative_to(_PACKAGE).as_posix()}:{inside[-1].lineno}"
