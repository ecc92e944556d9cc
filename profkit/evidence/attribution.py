"""Which lines of the program events belong to: one group for each line or place, the costliest lines first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.evidence.places import call_site, enclosing_function
from profkit.evidence.program import spent_ns
from profkit.run import CallSite
from profkit.trace.events import NONE, Rows
from profkit.trace.values import distinct


def group_by_site(facts: Facts, rows: Rows, forward: bool = False) -> Iterator[tuple[int, Rows]]:
    """The rows of each calling line (-1: unknown), the most frequent line first.

    With ``forward``, backward operators count to the line of their forward operator.
    """
    sites = (facts.lines.forward_site if forward else facts.lines.site)[rows]
    codes, counts = np.unique(sites, return_counts=True)
    for code in codes[np.argsort(-counts, kind="stable")]:
        yield int(code), rows[sites == code]


def busiest_site(facts: Facts, rows: Rows) -> int:
    """The call site at which most of the rows' time was spent, `NONE` where no line is known."""
    sites = facts.lines.site[rows]
    known = sites >= 0
    if not known.any():
        return NONE
    return int(np.bincount(sites[known], weights=spent_ns(facts, rows[known])).argmax())


def sites_by_time(facts: Facts, rows: Rows) -> list[int]:
    """The rows' call sites, the costliest first; of sites within a quarter of it, the one that runs first leads."""
    site = facts.lines.site[rows]
    known = site >= 0
    if not known.any():
        return []
    cost = np.bincount(site[known], weights=spent_ns(facts, rows[known]))
    order = [int(code) for code in np.argsort(-cost, kind="stable") if code in site]
    leading = next(int(code) for code in site[known] if cost[code] >= 0.75 * cost.max())
    return [leading, *(code for code in order if code != leading)]


def group_by_place(facts: Facts, runs: list[Rows], near_lines: int) -> Iterator[list[int]]:
    """Indices of the runs of operators that belong to one place of the program: in one function, with at most
    ``near_lines`` between the lines of one and the next. Without lines: in one function of the user's, where Python
    frames tell, else of the same operators."""
    names = facts.trace.events.name_code
    functions: dict[bytes, CallSite | None] = {}
    placed: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for index, run in enumerate(runs):
        site, operators = call_site(facts, busiest_site(facts, run)), distinct(names[run]).tobytes()
        if site is None and operators not in functions:
            functions[operators] = enclosing_function(facts, run)
        site = site or functions[operators]
        where = (site.file, site.function) if site else ("", operators.hex())
        around = [call_site(facts, int(code)) for code in distinct(facts.lines.site[run])]
        lines = [one.line for one in around if one and (one.file, one.function) == where] or [0]
        placed.setdefault(where, []).append((min(lines), max(lines), index))
    for found in placed.values():
        yield from _split_by_distance(sorted(found), near_lines)


def _split_by_distance(ranges: list[tuple[int, int, int]], near_lines: int) -> Iterator[list[int]]:
    """The third members of ranges of lines, those together that overlap or lie near each other."""
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
