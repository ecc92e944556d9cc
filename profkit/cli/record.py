"""profkit record"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click

from profkit.errors import UsageError

_VARIANTS = ("pitfall", "fix")


@click.command()
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Where the recordings go. Default: traces/recorded.")  # fmt: skip
def command(names: tuple[str, ...], output: Path | None) -> None:
    """Record scenarios on this machine's GPU, for machines that have none.

    Both variants of each SCENARIO (default: all that need a GPU) are run and kept under DIR/<GPU>/<scenario>.
    """
    from profkit.catalogue import find_scenario, list_scenarios
    from profkit.collect.devices import look_for_devices
    from profkit.collect.scenario import run_scenario

    gpu = look_for_devices().gpu
    if gpu is None:
        raise UsageError("record: PyTorch sees no GPU here")
    gpu = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    root = (output or Path("traces/recorded")) / gpu
    chosen = [find_scenario(name) for name in names] or [s for s in list_scenarios() if s.needs_gpu]
    for scenario in chosen:
        for variant in _VARIANTS:
            directory = root / scenario.name / variant
            fresh = directory.with_name(f".{variant}.new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            run_scenario(scenario.path, variant, "cuda", fresh)
            shutil.rmtree(directory, ignore_errors=True)
            fresh.rename(directory)
            click.echo(f"{scenario.name} ({variant}): {directory}")


command.name = "record"
