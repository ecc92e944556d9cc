"""profkit fix TARGET"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit.cli._copies import copies_of
from profkit.cli._recording import PROGRAM_FAILED, arguments_of_module, program_arguments
from profkit.cli._targets import TargetKind, classify, complete_rules

if TYPE_CHECKING:
    from profkit.diagnosis.fixing.proving import Fixes
    from profkit.diagnosis.fixing.turns import Program, Stage
    from profkit.diagnosis.settings import Settings
    from profkit.findings.values import Diagnosis

COULD_BE_WON = 1
_MOST_S = 300
"""Seconds for all runs of one change: three pairs of a program of 50 s."""


@click.command("fix", context_settings={"ignore_unknown_options": False})
@program_arguments
@click.option("--write", is_flag=True, help="Put the changes that held into the program's files.")
@click.option("--diff", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the patch there.")
@click.option("--check", is_flag=True, help="Exit with status 1 if a change held.")
@click.option(
    "--select", multiple=True, metavar="RULE", shell_complete=complete_rules, help="Only this rule; may be repeated."
)
@click.option("--all", "every", is_flag=True, help="Record again after what held, until nothing more is won.")
@click.option("--unsafe", is_flag=True, help="Also try changes that may alter the numbers that are computed.")
@click.option("--seed", type=int, metavar="N", help="Seed the random numbers of Python, NumPy and PyTorch.")
@click.option("--stdin", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="What the program reads from standard input; by default nothing.")  # fmt: skip
@click.option("--link", multiple=True, type=click.Path(path_type=Path, exists=True), metavar="PATH",
              help="Do not copy this; the program only reads it. May be repeated.")  # fmt: skip
@click.option("--most-seconds", type=click.IntRange(1), default=_MOST_S, show_default=True, metavar="N",
              help="Time for all runs of one change.")  # fmt: skip
@click.option("--allow-dirty", is_flag=True, help="With --write: although files in git have uncommitted changes.")
def command(  # click passes each option by its name
    target: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    write: bool,
    diff: Path | None,
    check: bool,
    select: tuple[str, ...],
    **options: Any,
) -> None:
    """Change the program so that it is faster, and prove that it still computes the same.

    TARGET is a script.py or the run directory of one. The program is recorded in a copy of its folder. For each finding
    that has a change, the copy runs before and after it by turns. A change holds if the program is faster or needs less
    memory, and if its exit status, what it prints and writes and the trained parameters stay the same. The changes that
    held are printed as a patch. The program's own files stay as they are without --write.

    \b
    profkit fix train.py -- --epochs 1
    profkit fix -m package.train
    profkit fix train.py --select input-bound --write
    profkit fix train.py --all --diff faster.patch
    """
    from profkit.diagnosis.fixing.patches import refuse_dirty
    from profkit.diagnosis.fixing.proving import ProgramFailed

    with _stage(target, arguments, module, options) as (stage, diagnosis):
        if write and not options["allow_dirty"]:
            refuse_dirty(stage.tree.root)
        try:
            fixes = _prove(stage, diagnosis, _settings(select), {**options, "small": bool(select)})
        except ProgramFailed as failed:
            click.echo(failed.errors, err=True, nl=False)
            click.echo(f"profkit: {failed}", err=True)
            sys.exit(PROGRAM_FAILED)
    _deliver(fixes, write, diff)
    if check and fixes.held:
        sys.exit(COULD_BE_WON)


@contextmanager
def _stage(
    target: str | None, arguments: tuple[str, ...], module: str | None, options: dict[str, Any]
) -> Iterator[tuple[Stage, Path | None]]:
    """Where the program's copies run, and the recording to take the findings from, if one was named. The copies go in
    the end, whatever ends profkit."""
    program, recording = _program(target, arguments, module, options)
    with copies_of(program, options["link"], "fix") as stage:
        yield stage, recording


def _program(
    target: str | None, arguments: tuple[str, ...], module: str | None, options: dict[str, Any]
) -> tuple[Program, Path | None]:
    from profkit.core.errors import UsageError
    from profkit.diagnosis.fixing.diagnosing import program_of
    from profkit.diagnosis.fixing.turns import Program

    with_input = {"stdin": options["stdin"], "seed": options["seed"]}
    if module is not None:
        return Program(module, arguments_of_module(target, arguments), is_module=True, **with_input), None
    if target is None:
        raise UsageError("give a script.py, a run directory, or -m MODULE (see `profkit fix --help`)")
    if classify(target) is TargetKind.SCRIPT:
        return Program(target, arguments, **with_input), None
    if not Path(target).is_dir():
        raise UsageError(f"{target}: fix takes a script.py, a run directory, or -m MODULE")
    (name, *given_then), is_module = program_of(Path(target))
    return Program(name, tuple(given_then), is_module, **with_input), Path(target)


def _settings(select: tuple[str, ...]) -> Settings:
    from profkit.core.memory_reuse import reuse_memory_for_columns

    reuse_memory_for_columns()  # the rules import NumPy, whose threads would keep this process from forking
    from profkit.diagnosis.settings import read_settings

    return read_settings(Path.cwd()).overridden(select, (), None, None)


def _prove(stage: Stage, recording: Path | None, settings: Settings, options: dict[str, Any]) -> Fixes:
    from profkit.cli._launching import choose_measure
    from profkit.core.telling import Teller
    from profkit.diagnosis.fixing.diagnosing import diagnose_copy
    from profkit.diagnosis.fixing.proving import Limits, prove_fixes
    from profkit.diagnosis.fixing.rounds import prove_all
    from profkit.diagnosis.pipeline import diagnose_path

    most_s = float(options["most_seconds"])
    diagnose = partial(diagnose_copy, measured=options["unsafe"])
    with Teller("fix") as teller:
        teller.at("recording the program")
        if recording is None:
            diagnosis: Diagnosis = diagnose(stage, settings, {}, most_s)
        else:
            diagnosis = diagnose_path(recording, choose_measure(options["unsafe"]), settings)
        limits = Limits(most_s, options["unsafe"], options["small"])
        fixes = prove_fixes(stage, diagnosis, limits, teller.at)
        if not options["every"] or not fixes.held:
            return fixes
        return prove_all(stage, lambda changed: diagnose(stage, settings, changed, most_s), fixes, limits, teller.at)


def _deliver(fixes: Fixes, write: bool, diff: Path | None) -> None:
    """Print everything, then write what was asked for."""
    from profkit.cli._output import say
    from profkit.diagnosis.fixing.patches import unified_diff, write_files
    from profkit.report.trials.fixes import render_fixes

    patch = unified_diff(fixes.root, fixes.after)
    end = "" if write or not fixes.held else "`--write` puts this into the files, `--diff FILE` keeps it as a patch."
    say(render_fixes(fixes, patch.decode("utf-8", "replace"), end))
    if diff is not None:
        diff.write_bytes(patch)
        click.echo(f"Written to {diff}", err=True)
    if write and fixes.held:
        write_files(fixes.root, fixes.before, fixes.after)
        names = ", ".join(str(name) for name in sorted(fixes.after))
        click.echo(f"Changed: {names}", err=True)
