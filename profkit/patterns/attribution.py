"""Which line is a finding about? One group of events for each line or place, and the line that leads.

A marked line has a number, its call site (`Facts.lines`). If no line is marked, Python frames may tell the function
(`profkit.patterns.places.events`). Lines are ordered by count, time or bytes, and always by `order_sites`, so that one
loop is always reported at the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from profkit.derive.facts import Facts
from profkit.patterns.frequency import in_most_steps
from profkit.patterns.places.events import call_site, call_sites, enclosing_function
from profkit.patterns.program import spent_ns
from profkit.run.directory import CallSite
from profkit.trace.events import NONE, Int32s, Int64s, Rows
from profkit.trace.statistics import distinct

Run = TypeVar("Run")
_NEAR = 0.75
"""Of the greatest weight. What takes within a quarter as long may lead in one recording and follow in the next."""


def order_sites(sites: Int32s | Int64s, weights: Int64s | None = None) -> list[int]:
    """The known call sites of some events, the heaviest first: by ``weights``, or else by the number of events. Of
    those within a quarter of the heaviest, the one whose events come first leads: weights vary that much from run to
    run, and where a loop begins says more."""
    known = sites >= 0
    if not known.any():
        return []
    codes, of_event = np.unique(sites[known], return_inverse=True)
    weight = np.bincount(of_event, None if weights is None else weights[known])
    leading = of_event[(weight >= _NEAR * weight.max())[of_event].argmax()]
    order = np.argsort(-weight, kind="stable")
    ordered: list[int] = codes[[leading, *order[order != leading]]].tolist()
    return ordered


def leading_site(sites: Int32s | Int64s, weights: Int64s | None = None) -> int:
    """The first of `order_sites`, `NONE` if no line is known."""
    return next(iter(order_sites(sites, weights)), NONE)


def busiest_site(facts: Facts, rows: Rows) -> int:
    """The call site that takes most of the rows' time, `NONE` if no line is known."""
    return next(iter(sites_by_time(facts, rows)), NONE)


def sites_by_time(facts: Facts, rows: Rows) -> list[int]:
    """The rows' call sites, the costliest first."""
    sites = facts.lines.site[rows]
    return order_sites(sites, spent_ns(facts, rows)) if (sites >= 0).any() else []  # times are for known lines only


def by_line(facts: Facts, rows: Rows, forward: bool = False) -> Iterator[Rows]:
    """The rows of each calling line, the most frequent line first. Rows without a line are one group.

    With ``forward``, backward operators count towards the line of their forward operator.
    """
    sites = (facts.lines.forward_site if forward else facts.lines.site)[rows]
    codes, counts = np.unique(sites, return_counts=True)
    for code in codes[np.argsort(-counts, kind="stable")]:
        yield rows[sites == code]


def frequent_lines(facts: Facts, rows: Rows, least: int = 1) -> Iterator[Rows]:
    """The rows of each line that has them in most steps, and in at least ``least`` steps."""
    return (of_line for of_line in by_line(facts, rows) if in_most_steps(facts, of_line, least))


def group_by_place(
    facts: Facts, found: Sequence[Run], rows_of: Callable[[Run], Rows], near_lines: int
) -> Iterator[tuple[list[Run], Rows]]:
    """The runs of operators that belong to one place of the program, and all their operators: in one function, with at
    most ``near_lines`` between the lines of one run and the next. If no line is known: in one function of the user's,
    if Python frames tell it, else with the same operators."""
    names = facts.trace.events.name_code
    functions: dict[bytes, CallSite | None] = {}
    placed: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for index, run in enumerate(map(rows_of, found)):
        site, operators = call_site(facts, busiest_site(facts, run)), distinct(names[run]).tobytes()
        if site is None and operators not in functions:
            functions[operators] = enclosing_function(facts, run)
        site = site or functions[operators]
        where = (site.file, site.function) if site else ("", operators.hex())
        around = call_sites(facts, facts.lines.site[run])
        lines = [one.line for one in around if (one.file, one.function) == where] or [0]
        placed.setdefault(where, []).append((min(lines), max(lines), index))
    for ranges in placed.values():
        for together in _split_by_distance(sorted(ranges), near_lines):
            yield [found[at] for at in together], np.concatenate([rows_of(found[at]) for at in together])


def _split_by_distance(ranges: list[tuple[int, int, int]], near_lines: int) -> Iterator[list[int]]:
    """The third members of the ranges, grouped: ranges of lines that overlap or lie near each other are together."""
    together: list[int] = []
    reach = 0
    for first, last, index in ranges:
        if together and first > reach + near_lines:
            yield together
            together = []
        reach = max(reach, last) if together else last
        together.append(index)
    if together:
        yield together
