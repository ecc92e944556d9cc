"""profkit verify [NAME…]"""

from __future__ import annotations

import sys

import click

from profkit.cli._targets import complete_scenarios

NOT_SHOWN = 1


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_scenarios)
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
def command(names: tuple[str, ...], everything: bool, as_json: bool, as_markdown: bool, device: str) -> None:
    """Measure whether the scenarios have the effect that profkit predicts.

    The mistake and the fix of each scenario run in turns, without a profiler, and the measured difference is compared
    with the predicted one. Exits with status 1 if a scenario does not show its effect, if its rule misses it, or if the
    rule fires on the fix.

    \b
    profkit verify cat-in-loop
    profkit verify --all --json
    """
    from profkit.cli._output import say
    from profkit.cli._progress import Progress
    from profkit.cli._targets import choose_device
    from profkit.core.errors import UsageError
    from profkit.diagnosis.catalogue import find_scenario, list_scenarios
    from profkit.diagnosis.verify import verify
    from profkit.report.verification import render_verification

    if everything == bool(names):
        raise UsageError("name the scenarios to verify, or use --all")
    scenarios = list_scenarios() if everything else tuple(find_scenario(name) for name in names)
    proofs = []
    with Progress() as progress:
        for number, scenario in enumerate(scenarios):
            progress.show(scenario.name, number, len(scenarios))
            proofs.append(verify(scenario, choose_device(device, False, scenario.gpus)))
    say(render_verification(proofs, "json" if as_json else "markdown" if as_markdown else "text"))
    if not all(proof.holds or not proof.was_run for proof in proofs):
        sys.exit(NOT_SHOWN)
