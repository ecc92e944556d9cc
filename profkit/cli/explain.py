"""profkit explain RULE"""

from __future__ import annotations

import click


@click.command()
@click.argument("rule")
def command(rule: str) -> None:
    """Show the page of a rule: what it detects, why that is bad, an example and what to use instead."""
    from profkit.rules import find_rule

    found = find_rule(rule)
    click.echo(f"{found.name} ({found.kind.value})\n\n{found.page}")


command.name = "explain"
