"""The located step: its lines are marked, so it shows whole chains of calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.core.marks import CALL_MARK
from profkit.derive.facts import Facts, derived_once
from profkit.patterns.places.events import call_sites
from profkit.run.directory import CallSite
from profkit.trace.events import NONE, Category, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows


def in_located_step(facts: Facts, rows: Rows) -> Rows:
    """Those of the rows that start in the first located step; none if no step is located."""
    located = np.flatnonzero(facts.steps.located)
    if not located.size:
        return rows[:0]
    inside: Rows = rows[facts.step_of(rows) == located[0]]
    return inside


def located_marks(facts: Facts) -> Rows:
    """The marked lines of the first located step."""
    return in_located_step(facts, facts.trace.rows(Category.LINE_MARK))


def sites_of_located_step(facts: Facts) -> list[CallSite]:
    """The known lines that ran in the first located step, each once."""
    return call_sites(facts, facts.trace.events.site[located_marks(facts)])


def marks_before(facts: Facts, row: int) -> Rows:
    """The marked lines of the first located step that began before an event, the latest first."""
    marks = located_marks(facts)
    start_ns = facts.trace.events.start_ns
    marks = marks[start_ns[marks] <= start_ns[row]]
    latest_first: Rows = marks[np.argsort(-start_ns[marks], kind="stable")]
    return latest_first


def lines_between(facts: Facts, first: int, last: int) -> list[str]:
    """The source of `sites_between`."""
    return [place.source for place in sites_between(facts, first, last)]


def sites_between(facts: Facts, first: int, last: int) -> list[CallSite]:
    """The distinct lines that ran from one mark to another of the same level, both included. From a loop's first round
    to its last, these are the loop's lines."""
    events = facts.trace.events
    marks = events.category == Category.LINE_MARK
    level = marks_around(facts)
    during = (events.start_ns >= events.start_ns[first]) & (events.start_ns <= events.start_ns[last])
    body = marks & during & (level == level[first]) & (events.lane == events.lane[first])
    return call_sites(facts, events.site[body])


def body_and_called(facts: Facts, marks: Rows, first: int) -> tuple[list[CallSite], list[CallSite]]:
    """The lines of a loop's body, whose ``marks`` lie under one mark as ``first`` does, and those of what it calls. A
    comprehension's own marks, inside those of its line, are no call."""
    own, events = marks_around(facts)[marks] == marks_around(facts)[first], facts.trace.events
    body, called = (call_sites(facts, events.site[rows]) for rows in (marks[own], marks[~own]))
    of_body = {(site.file, site.line) for site in body}
    return body, [site for site in called if (site.file, site.line) not in of_body]


@derived_once
def marks_around(facts: Facts) -> Rows:
    """Column over all events: the innermost line mark around each, or `NONE`."""
    return facts.tree.nearest_ancestor(facts.trace.events.category == Category.LINE_MARK)


def lines_outwards(facts: Facts, rows: Rows) -> Iterator[tuple[int, Int64s, Rows]]:
    """The lines around these events, level by level, from the innermost outwards. For each its site, the numbers of its
    events among ``rows``, and the mark of each: of a loop's line another mark in each round."""
    site, above = facts.trace.events.site, marks_around(facts)
    number, mark = np.arange(len(rows)), above[rows]
    while (mark >= 0).any():
        number, mark = number[mark >= 0], mark[mark >= 0]
        for line in distinct(site[mark]).tolist():
            here = site[mark] == line
            yield line, number[here], mark[here]
        mark = above[mark]


def rounds_by_line(facts: Facts, marks: Rows, least: int) -> list[Rows]:
    """Of these marks, in time order, those of each line under one mark, as in one run of a loop: one for each round, if
    there are ``least`` or more."""
    if not marks.size:
        return []
    _, run = distinct_rows(marks_around(facts)[marks], facts.trace.events.site[marks])
    order, counts = np.argsort(run, kind="stable"), np.bincount(run)
    runs = np.split(marks[order], np.cumsum(counts)[:-1])
    return [rounds for rounds in runs if len(rounds) >= least]


def ways_apart(facts: Facts, line: Rows, first_line: Rows) -> tuple[Rows, Rows]:
    """Both marks, moved outward equally far until the same mark, or none, lies around both."""
    above = marks_around(facts)
    while True:
        outer, first_outer = above[line], np.where(first_line >= 0, above[first_line], NONE)
        rises = (first_line >= 0) & (outer >= 0) & (first_outer >= 0) & (outer != first_outer)
        if not rises.any():
            return line, first_line
        line, first_line = np.where(rises, outer, line), np.where(rises, first_outer, first_line)


def call_marks(facts: Facts) -> Rows:
    """The located step's mark of each call of PyTorch's functions, by the call's number; `NONE` if it has none."""
    numbers = [name.removeprefix(CALL_MARK) if name.startswith(CALL_MARK) else "" for name in facts.trace.names]
    by_name = np.array(
        [int(n) if n.isascii() and n.isdigit() and len(n) < 8 else NONE for n in numbers], dtype=np.int64
    )
    marks = facts.trace.where_name(lambda name: name.startswith(CALL_MARK))
    rows = in_located_step(facts, np.flatnonzero(marks & (facts.trace.events.category == Category.HOST_MARK)))
    number = by_name[facts.trace.events.name_code[rows]]
    found = np.full(int(number.max(initial=NONE)) + 1, NONE, dtype=np.int64)
    found[number[number >= 0]] = rows[number >= 0]
    return found
