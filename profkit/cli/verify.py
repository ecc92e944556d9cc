"""profkit verify [NAME…]"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.cli._targets import complete_scenarios

if TYPE_CHECKING:
    from profkit.diagnosis.verify import Proof

NOT_SHOWN = 1
_MOST_S = 3600.0
"""Seconds for a run. A day's training is not run twice for this."""


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_scenarios)
@click.option("--twice", is_flag=True, help="Run a script twice, and name the first tensor whose bits differ.")
@click.option("--all", "everything", is_flag=True, help="Every built-in scenario.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as Markdown, with machine and date.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "cpu", "cuda"]),
    help="Where the scenarios run; auto: on a GPU if there is one.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Keep each result in this file, and take those from it that it already holds.",
)
def command(
    names: tuple[str, ...],
    twice: bool,
    everything: bool,
    as_json: bool,
    as_markdown: bool,
    device: str,
    resume: Path | None,
) -> None:
    """Measure whether the scenarios have the effect that profkit predicts.

    The mistake and the fix of each scenario run in turns, without a profiler, and the measured difference is compared
    with the predicted one. Each row is printed as it comes. Exits with status 1 if a scenario does not show its effect,
    if its rule misses it, or if the rule fires on the fix.

    \b
    profkit verify cat-in-loop
    profkit verify --all --json
    profkit verify --all --resume results.json

    With --twice, NAME is a script, and what follows are its arguments. It runs twice in copies of its folder; exits
    with status 1 if the bits of its tensors differ.

    \b
    profkit verify --twice train.py -- --epochs 1
    """
    if twice:
        _verify_twice(names)
    else:
        _verify_scenarios(names, everything, device, resume, _format(as_json, as_markdown))


def _verify_scenarios(
    names: tuple[str, ...], everything: bool, device: str, resume: Path | None, format_name: str
) -> None:
    from profkit.cli._targets import choose_device
    from profkit.core.errors import UsageError
    from profkit.core.telling import Teller
    from profkit.diagnosis.catalogue import find_scenario, list_scenarios
    from profkit.diagnosis.verify import verify
    from profkit.report.trials.verification import render_beginning, render_end, render_row

    if everything == bool(names):
        raise UsageError("name the scenarios to verify, or use --all")
    scenarios = list_scenarios() if everything else tuple(find_scenario(name) for name in names)
    chosen = [scenario.name for scenario in scenarios]
    known = {} if resume is None else _kept(resume)
    proofs = []
    _say_part(render_beginning(chosen, format_name))
    with Teller("verify") as teller:
        for number, scenario in enumerate(scenarios, 1):
            teller.at(f"{scenario.name}, {number} of {len(scenarios)}")
            there = choose_device(device, False, scenario.gpus)
            if (scenario.name, there) not in known:
                known[scenario.name, there] = verify(scenario, there)
                _keep(resume, known)
            proofs.append(known[scenario.name, there])
            _say_part(render_row(proofs[-1], chosen, format_name))
    _say_part(render_end(proofs, format_name))
    if not all(proof.holds or not proof.was_run for proof in proofs):
        sys.exit(NOT_SHOWN)


def _verify_twice(names: tuple[str, ...]) -> None:
    from profkit.cli._targets import TargetKind, classify
    from profkit.core.errors import UsageError
    from profkit.core.telling import Teller
    from profkit.diagnosis.twice import run_twice
    from profkit.report.trials.twice import render_twice

    if not names or classify(names[0]) is not TargetKind.SCRIPT:
        raise UsageError("--twice takes a script.py, and its arguments after --")
    with Teller("verify --twice") as teller:
        teller.at("the script runs")
        found = run_twice(Path(names[0]), names[1:], _MOST_S)
    _say_part(render_twice(found))
    if found.first is not None:
        sys.exit(NOT_SHOWN)


def _format(as_json: bool, as_markdown: bool) -> str:
    return "json" if as_json else "markdown" if as_markdown else "text"


def _say_part(text: str) -> None:
    from profkit.cli._output import say

    if text:
        say(text)
        sys.stdout.flush()


def _kept(file: Path) -> dict[tuple[str, str], Proof]:
    """Results of an earlier run by scenario and device, none if there is no file. What failed is run again."""
    import msgspec

    from profkit.core.errors import UnreadableInput
    from profkit.diagnosis.verify import Proof

    if not file.exists():
        return {}
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=list[tuple[str, Proof]])
    except (OSError, msgspec.DecodeError) as error:
        raise UnreadableInput(file, f"cannot be resumed: {error}") from error
    return {(proof.name, device): proof for device, proof in kept if not proof.verdict.startswith("failed")}


def _keep(file: Path | None, known: dict[tuple[str, str], Proof]) -> None:
    """Write all results anew: at no moment does the file hold half of them."""
    import msgspec

    from profkit.core.errors import UsageError
    from profkit.core.files.writing import write_file

    if file is None:
        return
    lines = [msgspec.json.encode((device, proof)) for (_, device), proof in known.items()]
    try:
        write_file(file.parent, file.name, b"[\n" + b",\n".join(lines) + b"\n]\n")
    except OSError as error:
        raise UsageError(f"--resume {file}: cannot be written: {error.strerror or error}") from error
