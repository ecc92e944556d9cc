"""What `profkit diagnose` and `profkit record` share: the options of a recording, and recording a program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from profkit.cli import BAD_INPUT
from profkit.cli._targets import complete_targets
from profkit.core.errors import RunDirectoryError, UsageError
from profkit.run.plan import ACTIVE_STEPS, BEST_SIGNAL, FULL_RANKS, SIGNALS, WAIT_STEPS, WARMUP_STEPS

PROGRAM_FAILED = 3
PROGRAMS_ONLY = ("steps_from", "at_step", "stop_after_recording", "nproc", "ranks")
"""Options that only make sense for a program."""
_LEFT_OUT = {"steps_from": BEST_SIGNAL, "at_step": 0, "stop_after_recording": False, "nproc": None, "ranks": FULL_RANKS}
"""Their defaults."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class RecordedProgram:
    """The run directories of a program: the first recording's, then those of its windows; for a launch the launch's,
    then its ranks' in order.

    ``status`` is the program's, 0 if profkit ended it as asked; ``remedy`` is what to do about a known failure. A rank
    (``is_rank``) was started by a launcher, which must learn how the program ended.
    """

    directories: tuple[Path, ...]
    status: int
    remedy: str = ""
    is_rank: bool = False
    is_launch: bool = False


_OPTIONS = (
    click.option(
        "--wait",
        type=click.IntRange(0),
        default=WAIT_STEPS,
        show_default=True,
        help="Steps timed without a profiler.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(0),
        default=WARMUP_STEPS,
        show_default=True,
        help="Steps recorded to learn which line runs what.",
    ),
    click.option(
        "--active",
        type=click.IntRange(1),
        default=ACTIVE_STEPS,
        show_default=True,
        help="Steps recorded and measured.",
    ),
    click.option(
        "--steps-from",
        type=click.Choice((BEST_SIGNAL, *SIGNALS)),
        default=BEST_SIGNAL,
        show_default=True,
        help="What ends a step of a program: `step()` of a profkit.profile, the optimizer's step, or a batch of the "
        "outermost DataLoader. Else a backward pass, a call of the model, or a new pass over the DataLoader.",
    ),
    click.option(
        "--at-step",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="Record from this step of a program on, counted as in the report.",
    ),
    click.option(
        "--stop-after-recording",
        is_flag=True,
        help="End the program, as sys.exit would, once it is recorded; by default it runs on.",
    ),
    click.option(
        "--nproc",
        type=click.IntRange(1),
        metavar="N",
        help="Run the program in N processes, as torchrun does, and record each.",
    ),
    click.option(
        "--ranks",
        type=click.IntRange(0),
        default=FULL_RANKS,
        show_default=True,
        metavar="N",
        help="Record this many ranks of a launch in full; of the others only collectives and steps.",
    ),
)


def program_arguments(command: _Command) -> _Command:
    """Add what names a program: TARGET with its arguments, or a module after -m."""
    options = (
        click.argument("target", required=False, shell_complete=complete_targets),
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        click.option("-m", "module", metavar="MODULE", help="Run this module as a program, like python -m."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def arguments_of_module(target: str | None, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """After ``-m MODULE`` what stands in the place of TARGET is the module's first argument."""
    return arguments if target is None else (target, *arguments)


run_directory_option = click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The run directory; must not hold another run. Default: traces/TARGET/TIME.",
)


def recording_options(command: _Command) -> _Command:
    """Add the options that say which steps of a program to record, and how."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_program(
    target: str, arguments: tuple[str, ...], output: Path | None, module: bool, **wishes: Any
) -> RecordedProgram:
    """Record a script or module. Ends profkit with one line if nothing was recorded."""
    from profkit.collect.launch.parent import launch_script
    from profkit.collect.ranks.identity import launch_in
    from profkit.run.directory import REPLACED_ITSELF, find_trace, load_run, what_keeps_from_writing

    directory = _make_directory(target, arguments, output, module)
    is_rank = bool(launch_in(directory.parent))
    if is_rank and wishes["stop_after_recording"]:
        click.echo("profkit: --stop-after-recording is ignored: the other ranks would wait for this one", err=True)
        wishes["stop_after_recording"] = False
    status = launch_script(target, list(arguments), directory, module=module, **wishes)
    run = load_run(directory)
    if run.was_stopped:
        status = 0
        click.echo("profkit: the program was ended once it was recorded, as asked", err=True)
    if find_trace(directory) is None:
        obstacle = what_keeps_from_writing(directory)
        lost = f"{directory} cannot be written: {obstacle}" if obstacle else ""
        reasons = lost or "; ".join(run.notes) or "it ran no PyTorch operator"
        click.echo(f"profkit: {target}: nothing was recorded: {reasons}", err=True)
        was_replaced = any(note.startswith(REPLACED_ITSELF) for note in run.notes)
        sys.exit(status if is_rank or was_replaced else PROGRAM_FAILED if status else BAD_INPUT)
    windows = [directory.with_name(name) for name in run.windows]
    recorded = (directory, *(path for path in windows if path.is_dir() and find_trace(path)))
    return RecordedProgram(recorded, status, _remedy(run.notes) if status else "", is_rank)


def _make_directory(target: str, arguments: tuple[str, ...], output: Path | None, module: bool) -> Path:
    """Where this process records. A rank that cannot write runs unrecorded, because the others would wait for it."""
    from profkit.collect.launch.parent import run_unrecorded
    from profkit.collect.ranks.folders import claim_directory
    from profkit.run.directory import create_directory, default_directory, directory_of_target

    try:
        claimed = claim_directory(output, directory_of_target(target))
    except RunDirectoryError as error:
        click.echo(f"profkit: not recording this rank: {error}", err=True)
        sys.exit(run_unrecorded(target, arguments, module=module))
    return claimed or create_directory(output or default_directory(target))


def _remedy(notes: tuple[str, ...]) -> str:
    from profkit.diagnosis.health.remedies import remedy_for

    return next((remedy for note in notes if (remedy := remedy_for(note))), "")


def fail_as(status: int, remedy: str = "", is_rank: bool = False) -> NoReturn:
    """End profkit because the program failed with ``status``, in a rank with the same status."""
    from profkit.diagnosis.health.program import describe_status

    advice = f": {remedy}" if remedy else ""
    click.echo(f"profkit: the program itself failed with {describe_status(status)}{advice}", err=True)
    sys.exit(status if is_rank else PROGRAM_FAILED)


def refuse_wishes(what: str, **wishes: Any) -> None:
    """Raise `UsageError` for options that only a script or a module takes."""
    for name, value in wishes.items():
        if value != _LEFT_OUT[name]:
            raise UsageError(f"--{name.replace('_', '-')}: not for {what}, only for a script or a module")
