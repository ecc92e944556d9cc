"""profkit explain RULE"""

from __future__ import annotations

import click

from profkit.cli._targets import complete_rules


@click.command("explain")
@click.argument("rule", shell_complete=complete_rules)
def command(rule: str) -> None:
    """Show the page of a rule: what it detects, why that is bad, an example and what to use instead."""
    from profkit.cli._output import say
    from profkit.rules import find_rule

    found = find_rule(rule)
    say(f"{found.name} ({found.kind.value})\n\n{found.page}")
