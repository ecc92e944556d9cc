"""Everything profkit raises on purpose.

::

    ProfkitError
    ├── UsageError           what was asked for cannot be done
    ├── UnreadableInput      a file is not what it should be
    └── RunDirectoryError    a run directory cannot be made or used

Each message is one line that names the file or the word at fault and the cause; the command line prints it and
exits with status 2. Any other exception is a flaw of profkit itself: the part of a diagnosis that it costs is named in
the report (see `profkit.failures`); elsewhere the command line prints one line with the place to report, and exits
with status 4.
"""

from __future__ import annotations

from pathlib import Path


class ProfkitError(Exception):
    """Base of every error that profkit raises on purpose."""


class UsageError(ProfkitError):
    """What was asked for cannot be done as asked."""


class _OfPath(ProfkitError):
    def __init__(self, path: Path | str, cause: str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = Path(path)
        self.cause = cause


class UnreadableInput(_OfPath):
    """A file given to profkit cannot be read as what it should be."""


class RunDirectoryError(_OfPath):
    """A run directory cannot be made, written or used."""
