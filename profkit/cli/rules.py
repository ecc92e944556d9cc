"""profkit rules"""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """List the rules: what profkit looks for.

    `profkit explain RULE` shows the page of one rule.
    """
    from profkit.cli._tables import show_table
    from profkit.rules import all_rules

    show_table([(rule.name, rule.kind.value, rule.summary) for rule in all_rules().values()])


command.name = "rules"
