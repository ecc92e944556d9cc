"""Everything profkit raises on purpose.

::

    ProfkitError
    ├── UsageError           the request cannot be met
    ├── UnreadableInput      a file is not what it should be
    └── RunDirectoryError    a run directory cannot be made or used

Each message is one line that names the file or the word at fault, and the cause; the command line prints it and exits
with status 2. Any other exception is a bug in profkit. If it breaks part of a diagnosis, the report names that part
(see `profkit.core.failures`); elsewhere the command line prints one line that says where to report it, and exits with
status 4.
"""

from __future__ import annotations

from pathlib import Path

from profkit.core.printing import visible


class ProfkitError(Exception):
    """Base of every error that profkit raises on purpose. The message is one line: what is wrong, and where. What it
    quotes from a file is made harmless to print."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class UsageError(ProfkitError):
    """The request cannot be met: an unknown name, an option that does not fit."""


class _OfPath(ProfkitError):
    def __init__(self, path: Path | str, cause: str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = Path(path)
        self.cause = cause


class UnreadableInput(_OfPath):
    """A file cannot be read, or is not what it should be. ``path`` is the file, ``cause`` the reason."""


class RunDirectoryError(_OfPath):
    """A run directory cannot be made, written or used. ``path`` is the directory, ``cause`` the reason."""
