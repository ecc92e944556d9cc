"""profkit rules"""

from __future__ import annotations

import click


@click.command("rules")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option(
    "--format",
    "format_name",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
    help="What goes to stdout.",
)
def command(words: tuple[str, ...], format_name: str) -> None:
    """List the rules: what profkit looks for.

    With words, only the rules whose name, kind or summary contains all of them. `profkit explain RULE` shows a rule's
    page.
    """
    from profkit.cli._output import show_table
    from profkit.rules import all_rules

    rows: list[tuple[str, ...]] = [(rule.name, rule.kind.value, rule.summary) for rule in all_rules().values()]
    rows = [row for row in rows if all(word.lower() in " ".join(row).lower() for word in words)]
    if format_name == "json":
        import json

        click.echo(json.dumps([dict(zip(("name", "kind", "summary"), row, strict=True)) for row in rows], indent=2))
    else:
        show_table(rows)
