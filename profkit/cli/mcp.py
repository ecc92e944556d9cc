"""profkit mcp"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from profkit.core.errors import UsageError


@click.command("mcp")
@click.option("--allow-write", is_flag=True, help="Let the tools put proven changes into files.")
@click.option("--skill", is_flag=True, help="Print the skill file that teaches an agent to use profkit, and end.")
def command(allow_write: bool, skill: bool) -> None:
    """Serve coding agents over the Model Context Protocol, on standard input and output.

    The tools diagnose, explain, fix_preview, compare and list_runs see the working folder only, and write nothing
    without --allow-write. Needs the package `mcp`: pip install "profkit[mcp]".

    \b
    profkit mcp
    profkit mcp --skill > .claude/skills/profkit/SKILL.md
    """
    from profkit.integrations.agents import read_skill

    if skill:
        click.echo(read_skill(), nl=False)
        return
    if find_spec("mcp") is None:
        raise UsageError('the package `mcp` is not installed: pip install "profkit[mcp]"')
    from profkit.integrations.agents.server import serve
    from profkit.integrations.agents.work import Workplace

    serve(Workplace(Path.cwd(), allow_write))
