"""Loops that read a number from a tensor in each round, although no round needs what an earlier one computed."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import DECOMPOSITION, MATRIX, base_name, operators_of
from profkit.derive.timeline.intervals import stretches
from profkit.patterns.loops.independent_rounds import rounds_are_independent
from profkit.patterns.loops.located import body_and_called, in_located_step
from profkit.patterns.loops.rounds import find_rounds
from profkit.trace.events import Category, Rows
from profkit.trace.statistics import distinct


def reading_loops(facts: Facts, reads: Rows, called: Rows) -> list[Rows]:
    """Each run, in the measured steps, of a loop around these reads of one line: those of the program's operators
    ``called`` that the loop calls, with no others in between.

    Empty if the source does not show that the rounds are independent. Empty too if a round multiplies or decomposes
    matrices, or runs what is not PyTorch's own: that is work, as in a loop over batches, not bookkeeping.
    """
    site = facts.trace.events.site
    sites = [site[_marks_from(facts, first, last)].astype(np.int64) for first, last in _loops_around(facts, reads)]
    within = distinct(np.concatenate([*sites, np.zeros(0, dtype=np.int64)]))
    if not within.size:
        return []
    mine, step = np.isin(facts.lines.site[called], within), facts.step_of(called)
    ends = np.flatnonzero((np.diff(step) != 0) | (np.diff(mine) != 0)) + 1
    runs = [called[part] for part in stretches(ends, len(called), 2) if mine[part.start]]
    works = operators_of(facts.trace, MATRIX, DECOMPOSITION) | facts.trace.where_name(lambda name: not base_name(name))
    if any(works[run].any() for run in runs):
        return []
    reading = facts.trace.mask_of(reads)
    return [run for run in runs if reading[run].sum() > 1]


def _loops_around(facts: Facts, reads: Rows) -> list[tuple[int, int]]:
    """The first and the last round's mark of each independent loop, in the located step, around the same line's
    reads."""
    events = facts.trace.events
    same = np.isin(events.name_code, distinct(events.name_code[reads])) & (events.category == Category.OPERATOR)
    same &= np.isin(facts.lines.site, distinct(facts.lines.site[reads])) & facts.tree.outermost(same)
    found = find_rounds(facts, in_located_step(facts, np.flatnonzero(same)))
    pairs = [(int(rounds.marks[0]), int(rounds.marks[-1])) for rounds in found]
    return [pair for pair in pairs if _is_independent(facts, *pair)]


def _is_independent(facts: Facts, first: int, last: int) -> bool:
    body, called = body_and_called(facts, _marks_from(facts, first, last), first)
    return rounds_are_independent(body, called, may_go_through_a_model=True)


def _marks_from(facts: Facts, first: int, last: int) -> Rows:
    """The marks of lines that ran from the beginning of one mark to the end of another."""
    events = facts.trace.events
    marks = facts.trace.rows(Category.LINE_MARK)
    inside = (events.start_ns[marks] >= events.start_ns[first]) & (events.start_ns[marks] <= facts.tree.end_ns[last])
    chosen: Rows = marks[inside & (events.lane[marks] == events.lane[first])]
    return chosen
