"""The line of something that the program calls between two operators, such as a wait for the device.

The located step need not hold calls of the runtime, and measured steps hold no lines. What they share are the operators
(`profkit.derive.steps.matching`): the call lies after one operator and before another, and so does the mark of its
line.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.source.syntax import calls
from profkit.trace.events import NONE, Category, Int32s, Int64s, Rows


def sites_of_calls(facts: Facts, rows: Rows, function: str) -> Int32s:
    """For each event the call site of the line that ran it. If only its place between two operators is known, it is
    that of the one line there that calls the function; `NONE` if there is none, or several."""
    sites, events = facts.lines.site[rows].copy(), facts.trace.events
    marks = marks_calling(facts, function)
    if not marks.size:
        return sites
    unknown = np.flatnonzero(sites == NONE)
    after_ns, before_ns = _between_operators(facts, rows[unknown])
    first = np.searchsorted(events.start_ns[marks], after_ns)
    last = np.searchsorted(events.start_ns[marks], before_ns) - 1
    at_first, at_last = (events.site[marks[at.clip(0, len(marks) - 1)]] for at in (first, last))
    sites[unknown] = np.where((first <= last) & (at_first == at_last), at_first, NONE)
    return sites


def marks_calling(facts: Facts, function: str) -> Rows:
    """The marks, in the first located step and in time order, of lines that call a function of this name and run no
    operator."""
    located = np.flatnonzero(facts.steps.located)
    named = [i for i, site in enumerate(facts.callsites) if calls(site.source, function)]
    events = facts.trace.events
    if not named:
        return np.zeros(0, dtype=np.int64)
    operators = facts.tree.holding(events.category == Category.OPERATOR)
    marks = facts.trace.rows(Category.LINE_MARK)
    marks = marks[np.isin(facts.step_of(marks), located[:1]) & np.isin(events.site[marks], named) & ~operators[marks]]
    return marks[np.argsort(events.start_ns[marks], kind="stable")]


def _between_operators(facts: Facts, rows: Rows) -> tuple[Int64s, Int64s]:
    """When the operators that surround each event in its own step ended and began in the located step. Without one it
    is the edge of the located step; an event outside the steps gets an empty range."""
    events, steps, origin = facts.trace.events, facts.steps, facts.repeats.row
    called = facts.tree.outermost(events.category == Category.OPERATOR) & (events.lane == steps.main_lane)
    called = np.flatnonzero(called & (origin >= 0))
    called = called[np.argsort(events.start_ns[called], kind="stable")]
    located = int(np.flatnonzero(steps.located)[0])
    step = facts.step_of(rows)
    after_ns = np.full(len(rows), steps.start_ns[located], dtype=np.int64)
    before_ns = np.full(len(rows), steps.end_ns[located], dtype=np.int64)
    if called.size:
        place = np.searchsorted(events.start_ns[called], events.start_ns[rows])
        previous, following = called[(place - 1).clip(min=0)], called[place.clip(max=len(called) - 1)]
        known = (place > 0) & (facts.step_of(previous) == step)
        after_ns = np.where(known, facts.tree.end_ns[origin[previous]], after_ns)
        known = (place < len(called)) & (facts.step_of(following) == step)
        before_ns = np.where(known, events.start_ns[origin[following]], before_ns)
    return after_ns, np.where(step >= 0, before_ns, after_ns)
