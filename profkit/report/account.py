"""How the savings of a diagnosis came about, for a terminal: what was taken out of the step, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profkit.findings.values import Diagnosis, Finding
from profkit.report import wording
from profkit.report.account_wording import HEADER, account_rows, account_sentences
from profkit.report.page import BOLD, Page

_NO_TIME = "No time is predicted, or an earlier version of profkit wrote this: nothing was replayed."


def render_accounts(
    diagnosis: Diagnosis,
    chosen: Sequence[tuple[int, Finding]],
    models: Mapping[str, Sequence[str]],
    width: int = 80,
    color: bool = False,
) -> str:
    """The accounts of the findings ``chosen``, with their numbers, wrapped at ``width`` columns. ``models`` has the
    lines of each rule's page that say how it estimates."""
    page = Page(width, color)
    for number, finding in chosen:
        if number != chosen[0][0]:
            page.write()
        _write_account(page, diagnosis, number, finding)
        model = models.get(finding.rule, ())
        if model and finding.saving is not None:
            page.write_title(f"How {wording.printable(finding.rule)} estimates")
            page.write(" ".join(wording.printable(line) for line in model))
    return str(page)


def _write_account(page: Page, diagnosis: Diagnosis, number: int, finding: Finding) -> None:
    where = f", {wording.short_place(finding.location)}" if finding.location else ""
    page.write(f"{number}. {wording.printable(finding.rule)}{where}", BOLD)
    page.write(f"{wording.price_label(finding).capitalize()}: {wording.cost(finding)}")
    sentences = account_sentences(diagnosis, finding)
    if finding.account is None or not sentences:
        page.write(_NO_TIME)
        return
    page.write()
    page.write_table([HEADER, *account_rows(finding.account)], right=frozenset({1, 2}))
    page.write()
    for sentence in sentences:
        page.write_bullet(sentence)
