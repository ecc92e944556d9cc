"""Copies of the program's folder, in which `profkit fix` and `profkit diagnose --try-batch` run it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from profkit.diagnosis.fixing.larger_batches import BatchTrials
    from profkit.diagnosis.fixing.turns import Program, Stage

_INTERRUPTED = 130
"""The exit status that shells report for a program that was interrupted."""
_TERMINATED = 143
"""The same for one that was asked to end."""
_MOST_TRIAL_S = 180.0
"""Seconds for one batch: a minute of steps, and two to begin."""


@contextmanager
def copies_of(program: Program, links: tuple[Path, ...], command: str) -> Iterator[Stage]:
    """Where copies of the program run. They go in the end, whatever ends profkit."""
    from tempfile import TemporaryDirectory

    from profkit.diagnosis.fixing.trees import tree_of
    from profkit.diagnosis.fixing.turns import Stage

    script = None if program.is_module else Path(program.target)
    tree = tree_of(script, Path.cwd(), links)
    if script is not None:
        program = replace(program, target=str(script.resolve().relative_to(tree.root)))
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        with TemporaryDirectory(prefix=f"profkit-{command}-") as folder:
            yield Stage(tree, program, Path(folder).resolve())
    except KeyboardInterrupt:
        click.echo("profkit: interrupted; the program's files are as they were", err=True)
        sys.exit(_INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


def try_larger_batches(target: str, arguments: tuple[str, ...], module: bool, links: tuple[Path, ...]) -> BatchTrials:
    """Run the program with larger batches, in copies of its folder."""
    from profkit.core.telling import Teller
    from profkit.diagnosis.fixing.larger_batches import try_batches
    from profkit.diagnosis.fixing.turns import Program

    program = Program(target, arguments, is_module=module)
    with copies_of(program, links, "batch") as stage, Teller("--try-batch") as teller:
        return try_batches(stage, _MOST_TRIAL_S, teller.at)
