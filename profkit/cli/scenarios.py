"""profkit scenarios"""

from __future__ import annotations

import click


@click.command("scenarios")
def command() -> None:
    """List the built-in scenarios: a common mistake next to its fix.

    `profkit diagnose NAME` runs the mistake, `profkit diagnose NAME --variant fix` its fix.
    """
    from profkit.cli._output import show_table
    from profkit.diagnosis.catalogue import list_scenarios

    show_table([(s.name, "GPU" if s.needs_gpu else "CPU, GPU", s.summary) for s in list_scenarios()])
