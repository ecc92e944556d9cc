"""The diagnosis of a recording, which code above this package makes: it registers here, and nothing here imports it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_DIAGNOSERS: list[Callable[[Path], Any]] = []


def diagnose_with(diagnoser: Callable[[Path], Any]) -> None:
    """From now on, ``diagnoser`` makes the diagnosis of a run directory."""
    _DIAGNOSERS[:] = [diagnoser]


def diagnose(directory: Path) -> Any:
    """The diagnosis of what was recorded there; None while no diagnoser is registered."""
    return _DIAGNOSERS[0](directory) if _DIAGNOSERS else None
