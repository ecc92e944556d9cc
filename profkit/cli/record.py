"""profkit record"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import click

from profkit.cli._launching import run
from profkit.cli._recording import PROGRAMS_ONLY, fail_as, recording_options, refuse_wishes
from profkit.cli._targets import TargetKind, classify, complete_targets
from profkit.core.errors import UsageError

_VARIANTS = ("pitfall", "fix")


@click.command("record")
@click.argument(
    "names",
    nargs=-1,
    metavar="[SCENARIO]... | SCRIPT.py [ARGS]...",
    type=click.UNPROCESSED,
    shell_complete=complete_targets,
)
@click.option("-m", "module", metavar="MODULE", help="Record this module as a program, like python -m.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the recordings go. Default: traces/recorded, for a program traces/TARGET/TIME.",
)
@recording_options
def command(names: tuple[str, ...], module: str | None, output: Path | None, **wishes: Any) -> None:
    """Record a program without judging it, or scenarios for machines without a GPU.

    A SCRIPT.py or a module runs as under `profkit diagnose`, with its arguments after --. The run directory is printed,
    for `profkit diagnose DIR` later or elsewhere. Of each SCENARIO (default: all that need a GPU) both variants run on
    this machine's GPU, and the recordings go to DIR/<GPU>/<scenario>.
    """
    if module is not None:
        _record_program(module, names, output, True, wishes)
    elif names and names[0].endswith(".py") and classify(names[0]) is TargetKind.SCRIPT:
        _record_program(names[0], names[1:], output, False, wishes)
    else:
        refuse_wishes("a scenario", **{name: wishes.pop(name) for name in PROGRAMS_ONLY})
        _record_scenarios(names, output, wishes)


def _record_program(
    target: str, arguments: tuple[str, ...], output: Path | None, module: bool, wishes: dict[str, Any]
) -> None:
    recorded = run(target, arguments, output, module, **wishes)
    for directory in recorded.directories[: 1 if recorded.is_launch else None]:
        click.echo(str(directory), err=True)
    if recorded.status:
        fail_as(recorded.status, recorded.remedy, recorded.is_rank)


def _record_scenarios(names: tuple[str, ...], output: Path | None, plan: dict[str, Any]) -> None:
    from profkit.collect.launch.scenario import run_scenario
    from profkit.collect.machine.devices import look_for_devices
    from profkit.diagnosis.catalogue import find_scenario, list_scenarios

    devices = look_for_devices()
    if devices.gpu is None:
        raise UsageError("record: PyTorch sees no GPU here")
    gpu = re.sub(r"[^a-z0-9]+", "-", devices.gpu.lower()).strip("-")
    root = (output or Path("traces/recorded")) / gpu
    needing = [one for one in list_scenarios() if one.needs_gpu and one.gpus <= devices.gpus]
    chosen = [find_scenario(name) for name in names] or needing
    for scenario in chosen:
        for variant in _VARIANTS:
            directory = root / scenario.name / variant
            fresh = directory.with_name(f".{variant}.new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            run_scenario(scenario.path, variant, "cuda", fresh, **plan)
            shutil.rmtree(directory, ignore_errors=True)
            fresh.rename(directory)
            click.echo(f"{scenario.name} ({variant}): {directory}")
