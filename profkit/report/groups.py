"""Findings with one cause are one card: the same rule, kind and fix at several lines."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from profkit.core.units import format_count, format_share, format_time
from profkit.findings.values import Diagnosis, Finding, Location, notable
from profkit.report.wording import cost, minor_findings, place, printable, short_place

_MOST_PLACES = 8
"""Lines of one group that are listed. Who mends eight alike finds the ninth."""

_MOST_CHARACTERS = 80
"""Of the text of such a line: enough to know it by."""


class Group(Struct, frozen=True):
    """Findings of one rule and fix, the largest first. ``numbers`` are theirs in the report, from 1."""

    findings: tuple[Finding, ...]
    numbers: tuple[int, ...] = ()

    @property
    def first(self) -> Finding:
        """The finding with the largest gain."""
        return self.findings[0]

    @property
    def label(self) -> str:
        """``2``, ``2 to 4`` or ``2, 5``."""
        if len(self.numbers) > 2 and self.numbers[-1] - self.numbers[0] == len(self.numbers) - 1:
            return f"{self.numbers[0]} to {self.numbers[-1]}"
        return ", ".join(map(str, self.numbers))


def major_groups(diagnosis: Diagnosis) -> list[Group]:
    """The findings to act on, those with one cause together, each group where its first finding ranks."""
    return _grouped(list(enumerate(notable(diagnosis.findings), 1)))


def minor_groups(diagnosis: Diagnosis) -> list[Group]:
    """The findings too small to act on, those of one rule together: each group is one line."""
    found: dict[object, list[Finding]] = {}
    for one in minor_findings(diagnosis):
        found.setdefault((one.rule, one.kind), []).append(one)
    return [Group(tuple(group)) for group in found.values()]


def _grouped(numbered: Sequence[tuple[int, Finding]]) -> list[Group]:
    found: dict[object, list[tuple[int, Finding]]] = {}
    for number, one in numbered:
        found.setdefault((one.rule, one.kind, one.fix), []).append((number, one))
    return [Group(tuple(one for _, one in group), tuple(number for number, _ in group)) for group in found.values()]


def group_cost(group: Group) -> str:
    """What the group costs or gains: of several, what all of them give back together, as far as that is known."""
    step, others = group.first.saving, [one.saving for one in group.findings[1:]]
    if not others or step is None or step.fraction <= 0 or step.run_ns:
        return cost(group.first)
    shares = [saving.beyond for saving in others if saving is not None and saving.beyond is not None]
    if len(shares) < len(others):
        return f"{cost(group.first)} at the first of {format_count(len(group.findings), 'line')}"
    share = step.fraction + sum(shares)
    time_ns = step.time_ns_per_step * share / step.fraction
    return f"{format_time(time_ns)} per step ({format_share(share)} of the {step.whole}) together"


def other_places(group: Group) -> list[str]:
    """The lines of the group's other findings, each with its price; of very many only the first."""
    rows = []
    for one in group.findings[1:]:
        where = place(one.location) if one.location is not None else "at a line that is not known"
        rows.append(f"{where}{_weight(one)}{_text_of(one.location)}")
    left = len(rows) - _MOST_PLACES
    return [*rows[:_MOST_PLACES], *([f"and {format_count(left, 'more line')}"] if left > 0 else [])]


def _text_of(location: Location | None) -> str:
    """What the line says, as the same rule may mean something else there."""
    text = printable(location.source.strip()) if location is not None else ""
    return f": {text[:_MOST_CHARACTERS]}{'…' * (len(text) > _MOST_CHARACTERS)}" if text else ""


def _weight(finding: Finding) -> str:
    saving = finding.saving
    if saving is None or saving.fraction <= 0:
        return ""
    return f", {format_share(saving.fraction)} of the {saving.whole}"


def minor_place(group: Group) -> str:
    """`` at net.py:12 and 4 more lines``; empty if no line is known."""
    places: list[Location] = []
    for one in group.findings:
        if one.location is not None and one.location not in places:
            places.append(one.location)
    if not places:
        return ""
    more = f" and {format_count(len(places) - 1, 'more line')}" if len(places) > 1 else ""
    return f" at {short_place(places[0])}{more}"


def minor_message(group: Group) -> str:
    """The first sentence of what the first finding says."""
    return printable(group.first.message).partition(". ")[0].rstrip(".")
