"""profkit roofline TRACE"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.core.errors import UnreadableInput, UsageError

if TYPE_CHECKING:
    from profkit.findings.roofline import Roofline


@click.command("roofline")
@click.argument("trace", metavar="TRACE|RUN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--card", default="", metavar="NAME", help="The device, if the trace does not name it: 'A100 SXM4 80GB'.")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many launches to list, the largest by time first.",
)
def command(trace: str, as_json: bool, card: str, most: int) -> None:
    """Show how near each launch comes to what the device could do.

    Operations and bytes follow from the recorded shapes, the device's rates from its data sheet or, of a processor,
    from a measurement (`profkit doctor`). A launch takes at least the longer of its arithmetic and its traffic; the
    share of the possible is that time over its own.

    \b
    profkit roofline trace.json.gz
    profkit roofline trace.json.gz --card "AMD Instinct MI300X" --json
    """
    from profkit.cli._output import say, terminal_settings

    found = _roofline_of(trace, card)
    if as_json:
        from profkit.report.json import to_json

        return say(to_json(found).removesuffix("\n"))
    from profkit.report.page import Page
    from profkit.report.text import write_roofline

    page = Page(*terminal_settings())
    write_roofline(page, found, most)
    return say(str(page).strip("\n"))


def _roofline_of(trace: str, card: str) -> Roofline:
    from profkit.cli._targets import latest_run
    from profkit.diagnosis.pipeline import read_facts
    from profkit.diagnosis.rooflines import check_card, describe_roofline, why_no_roofline

    path = Path(trace)
    if not path.exists():
        raise UnreadableInput(path, "no such file or directory")
    if card:
        check_card(card)
    facts = read_facts(latest_run(path), card=card)
    found = describe_roofline(facts)
    if found is None:
        raise UsageError(f"{trace}: {why_no_roofline(facts)}")
    return found
