"""The command line: a file per command, whose docstring is its help text.

Nothing heavy is imported at the top of a command's module, so ``profkit --help`` stays fast.

Decisions, and why they were made:

- A process that only reads a trace keeps freed memory (``core/memory_reuse.py``). New pages took up to a fifth of the
  time at 1 GB.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import click

from profkit.core.errors import ProfkitError
from profkit.core.failures import STRICT, describe_failure
from profkit.core.files.outlets import outlets

BAD_INPUT = 2
OWN_FAILURE = 4
"""Not 1, which means that `--fail-on` was reached."""
_LONGEST_CAUSE_CHARACTERS = 200
_WHOLE_SUMMARY = 1000
"""More characters than any summary has."""


class _Commands(click.Group):
    """Finds the commands by walking this package: each module has one, called ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        modules = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
        return sorted(name.replace("_", "-") for name in modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            from profkit.cli._targets import nearest

            ctx.fail(f"there is no command {args[0]!r}{nearest(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Wrap the summary of each command; click would cut it."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(_WHOLE_SUMMARY)) for name, one in commands if one])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="profkit", message="%(prog)s %(version)s")
def group() -> None:
    """Tells you what to change in a slow or memory-hungry PyTorch program, on which line, and what it saves."""


def main() -> None:
    """Run the command line. profkit's own errors, and paths without permission, become one line on stderr and exit
    status 2. Unforeseen errors become one line and exit status 4."""
    with outlets():
        _run()


def _run() -> None:
    try:
        group(prog_name="profkit")
    except ProfkitError as error:
        click.echo(f"profkit: {error}", err=True)
        sys.exit(BAD_INPUT)
    except PermissionError as error:
        click.echo(f"profkit: {error.filename or 'a file'}: {error.strerror or error}", err=True)
        sys.exit(BAD_INPUT)
    except Exception as error:  # a traceback would not help a user, and Python would exit with status 1
        failure = describe_failure(error)
        cause = " ".join(ascii(str(error))[1:-1].split())[:_LONGEST_CAUSE_CHARACTERS]
        click.echo(f"profkit: {failure}{cause and f': {cause}'} ({STRICT}=1 shows the traceback)", err=True)
        sys.exit(OWN_FAILURE)
