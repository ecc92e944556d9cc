"""How a program is started: bare, and in each way of profkit's."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.beside.declared import AS_MODULES, Program

DRIVER = Path(__file__).with_name("driver.py")
MODES = ("record", "diagnose", "profile")
BARE, BARE_DRIVER = "bare", "bare driver"
"""What `record` and `diagnose` are compared with, and what a profile is."""


@dataclass(frozen=True)
class Staged:
    """A program as it lies ready to be started: ``target`` is what Python, and profkit, are given."""

    program: Program
    target: str
    run: Path
    """Where profkit records."""


def command(mode: str, staged: Staged) -> list[str]:
    program, arguments = staged.program, list(staged.program.arguments)
    is_module = program.start in AS_MODULES
    if mode == BARE:
        option = ["-m"] if is_module else ["-c"] if program.start == "code" else []
        return [sys.executable, *option, *([] if program.start == "text" else [staged.target]), *arguments]
    if mode in ("profile", BARE_DRIVER):
        kind = "module" if is_module else "code" if program.start in ("code", "text") else "script"
        run = "-" if mode == BARE_DRIVER else str(staged.run)
        return [sys.executable, str(DRIVER), run, kind, staged.target, *arguments]
    what = ["-m", staged.target, "--"] if is_module else [staged.target, "--"]
    return [sys.executable, "-m", "profkit", mode, "--output", str(staged.run), *what, *arguments]
