"""Links that open a line in an editor: only for files on this machine, and harmless whatever the files are called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from profkit.diagnosis.settings import EDITORS
from profkit.findings.values import Location

_JETBRAINS = "JetBrains"


def link_to(location: Location, template: str) -> str:
    """The address that opens a line, from a template with ``{file}`` and ``{line}``; empty if the file is not here or
    the line is unknown."""
    if not template or location.line <= 0 or not _is_here(location.file):
        return ""
    path = Path(location.file)
    drive = f"/{path.drive}" if path.drive else ""
    file = drive + quote(path.as_posix()[len(path.drive) :], safe="/", errors="replace")
    return template.replace("{line}", str(location.line)).replace("{file}", file)


def _is_here(file: str) -> bool:
    path = Path(file)
    try:
        return path.is_absolute() and path.suffix == ".py" and not file.startswith(("\\\\", "//")) and path.is_file()
    except (OSError, ValueError):  # a null byte, or a name that is too long
        return False


def usual_editor(environment: Mapping[str, str] = os.environ) -> str:
    """PyCharm's template in a JetBrains terminal, else VS Code's. Empty over SSH and in CI, where the page is viewed
    on another machine, without the files."""
    if environment.get("SSH_CONNECTION") or environment.get("CI"):
        return ""
    is_jetbrains = environment.get("TERMINAL_EMULATOR", "").startswith(_JETBRAINS)
    return EDITORS["pycharm" if is_jetbrains else "vscode"]
