"""The diagnosis of a recording. Code above this package makes it and registers here; nothing here imports it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_DIAGNOSERS: list[Callable[[Path], Any]] = []


def diagnose_with(diagnoser: Callable[[Path], Any]) -> None:
    """Let ``diagnoser`` make the diagnosis of a run directory from now on."""
    _DIAGNOSERS[:] = [diagnoser]


def diagnose(directory: Path) -> Any:
    """The diagnosis of the run directory; None while no diagnoser is registered."""
    return _DIAGNOSERS[0](directory) if _DIAGNOSERS else None
