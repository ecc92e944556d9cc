"""What `profkit diagnose` and `profkit record` share: the options of a recording, and running a program for one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from profkit.cli import BAD_INPUT
from profkit.errors import UsageError
from profkit.plan import ACTIVE_STEPS, BEST_SIGNAL, SIGNALS, WAIT_STEPS, WARMUP_STEPS

PROGRAM_FAILED = 3
PROGRAMS_ONLY = ("steps_from", "at_step", "stop_after_recording")
"""Options that mean nothing where the steps of no program are looked for."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class RecordedProgram:
    """The run directories of a program: the first recording's, then those of its windows. ``status`` is how the program
    ended, 0 where profkit ended it as asked; ``remedy`` says what to do about a failure, where that is known."""

    directories: tuple[Path, ...]
    status: int
    remedy: str = ""


def recording_options(command: _Command) -> _Command:
    """Give a command the options that say which steps of a program to record, and how."""
    options = (
        click.option("--wait", type=click.IntRange(0), default=WAIT_STEPS, show_default=True,
                     help="Steps timed without a profiler."),
        click.option("--warmup", type=click.IntRange(0), default=WARMUP_STEPS, show_default=True,
                     help="Steps recorded to learn which line runs what."),
        click.option("--active", type=click.IntRange(1), default=ACTIVE_STEPS, show_default=True,
                     help="Steps recorded and measured."),
        click.option("--steps-from", type=click.Choice((BEST_SIGNAL, *SIGNALS)), default=BEST_SIGNAL, show_default=True,
                     help="What ends a step of a program: `step()` of a profkit.profile, the optimizer's step, a batch "
                          "of the outermost DataLoader, a call of the model, a new pass over the DataLoader."),
        click.option("--at-step", type=click.IntRange(0), default=0, metavar="N",
                     help="Record from this step of a program on, by the numbers that the report gives to steps."),
        click.option("--stop-after-recording", is_flag=True,
                     help="End the program, as sys.exit would, once it is recorded; the default is to let it run."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def run_program(
    target: str, arguments: tuple[str, ...], output: Path | None, module: bool, **wishes: Any
) -> RecordedProgram:
    """Run a script, or a module, recorded; ends profkit with one line where nothing was recorded."""
    from profkit.collect.launch.parent import launch_script
    from profkit.run import (
        create_directory,
        default_directory,
        directory_of_rank,
        find_trace,
        load_run,
        what_keeps_from_writing,
    )

    directory = create_directory(directory_of_rank(output or default_directory(target)))
    status = launch_script(target, list(arguments), directory, module=module, **wishes)
    run = load_run(directory)
    if run.was_stopped:
        status = 0
        click.echo("profkit: the program was ended once it was recorded, as asked", err=True)
    if find_trace(directory) is None:
        obstacle = what_keeps_from_writing(directory)
        lost = f"{directory} cannot be written: {obstacle}" if obstacle else ""
        reasons = lost or "; ".join(run.notes) or "it ran no operator of PyTorch"
        click.echo(f"profkit: {target}: nothing was recorded: {reasons}", err=True)
        sys.exit(PROGRAM_FAILED if status else BAD_INPUT)
    windows = [directory.with_name(name) for name in run.windows]
    recorded = (directory, *(path for path in windows if path.is_dir() and find_trace(path)))
    return RecordedProgram(recorded, status, _remedy(run.notes) if status else "")


def _remedy(notes: tuple[str, ...]) -> str:
    from profkit.health.remedies import remedy_for

    return next((remedy for note in notes if (remedy := remedy_for(note))), "")


def fail_as(status: int, remedy: str = "") -> NoReturn:
    """End profkit because the program ended with this status, which is not 0."""
    from profkit.health.program import describe_status

    told = f": {remedy}" if remedy else ""
    click.echo(f"profkit: the program itself failed with {describe_status(status)}{told}", err=True)
    sys.exit(PROGRAM_FAILED)


def refuse_wishes(what: str, **wishes: Any) -> None:
    """Only a program of the user's has signals to choose from, and can be ended: raise `UsageError` for others."""
    for name, value in wishes.items():
        if value not in (0, BEST_SIGNAL):
            raise UsageError(f"--{name.replace('_', '-')}: {what} has no such choice: only a script or a module does")
