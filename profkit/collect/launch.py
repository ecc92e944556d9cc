"""The parent's side of a recorded program: start its process, wait, and say how it ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profkit.run import RUN_FILE, load_run, save

_CHILD = "profkit.collect.script"


def launch_script(
    target: str,
    arguments: Sequence[str],
    directory: Path,
    *,
    module: bool = False,
    wait: int = 3,
    warmup: int = 1,
    active: int = 4,
) -> int:
    """Run a script, or a module, recorded into ``directory``, and return its exit status.

    Its standard streams are the caller's own. An interrupt at the terminal reaches the program, which decides what to
    do; a second one is raised here. A program that a signal ends has the status that shells give it (128 + number).
    """
    options = [f"--wait={wait}", f"--warmup={warmup}", f"--active={active}", *(["--module"] if module else [])]
    command = [sys.executable, "-m", _CHILD, f"--directory={directory}", *options, "--", target, *arguments]
    with subprocess.Popen(command) as process:  # noqa: S603  # the program that the user asked to run
        try:
            returned = process.wait()
        except KeyboardInterrupt:
            returned = process.wait()
    status = returned if returned >= 0 else 128 - returned
    _complete(directory, status)
    return status


def _complete(directory: Path, status: int) -> None:
    """Note what a process that left without a word could not: ``os._exit``, or a signal."""
    run = load_run(directory)
    if run.exit_status is None:
        note = "the program ended without Python's own exit (os._exit or a signal): what it recorded last is missing"
        save(directory, RUN_FILE, replace(run, exit_status=status, notes=(*run.notes, note)))
