"""profkit explain RULE and profkit explain RUN"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.cli._targets import complete_explained, looks_like_path
from profkit.core.errors import UnreadableInput, UsageError

if TYPE_CHECKING:
    from profkit.findings.values import Diagnosis, Finding


@click.command("explain")
@click.argument("what", metavar="RULE|RUN", shell_complete=complete_explained)
@click.option(
    "--finding",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only this finding of RUN, by its number in the report.",
)
def command(what: str, number: int | None) -> None:
    """Show the page of a rule: what it detects, why that is bad, an example and what to use instead.

    Of a run, its diagnosis.json or a trace, show how each saving came about: what was taken out of the step, the step
    before and after, and how sure that is.
    """
    from profkit.cli._output import say
    from profkit.rules import all_rules, find_rule

    if number is not None or (Path(what).exists() and what not in all_rules()) or looks_like_path(what):
        say(_accounts(Path(what), number).removesuffix("\n"))
    else:
        found = find_rule(what)
        say(f"{found.name} ({found.kind.value})\n\n{found.page}")


def _accounts(path: Path, number: int | None) -> str:
    from profkit.cli._output import terminal_settings
    from profkit.report.account import render_accounts
    from profkit.rules import all_rules

    diagnosis = _diagnosis_at(path)
    chosen = _choose(diagnosis, number, path)
    models = {rule.name: rule.model for rule in all_rules().values()}
    width, color = terminal_settings()
    return render_accounts(diagnosis, chosen, models, width, color)


def _diagnosis_at(path: Path) -> Diagnosis:
    """The diagnosis that lies there; what has none yet is diagnosed, and nothing is written."""
    import profkit
    from profkit.cli._targets import latest_run
    from profkit.run.directory import DIAGNOSIS_FILE

    if not path.exists():
        raise UnreadableInput(path, "no such file or directory")
    run = latest_run(path)
    is_saved = run.name == DIAGNOSIS_FILE or (run / DIAGNOSIS_FILE).exists()
    return profkit.load(run) if is_saved else profkit.diagnose(run)


def _choose(diagnosis: Diagnosis, number: int | None, path: Path) -> list[tuple[int, Finding]]:
    """The findings by their numbers in the report, those that are too small to have one after them."""
    from profkit.findings.values import notable

    numbered = notable(diagnosis.findings)
    every = [*numbered, *(finding for finding in diagnosis.findings if finding not in numbered)]
    if not every:
        raise UsageError(f"{path}: nothing was found there, so there is no saving to explain")
    if number is None:
        return list(enumerate(numbered or every, 1))
    if number > len(every):
        raise UsageError(f"{path}: there is no finding {number}; it has {len(every)}")
    return [(number, every[number - 1])]
