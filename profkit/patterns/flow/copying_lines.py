"""Lines that only copy tensors: which of the located step's lines those are, and their operators in all steps."""

from __future__ import annotations

import ast

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import operators_of
from profkit.derive.timeline.intervals import stretches
from profkit.patterns.loops.located import located_marks, marks_around
from profkit.patterns.program import located_operators, program_operators
from profkit.run.directory import CallSite
from profkit.source.syntax import closing_brackets, parse_statements
from profkit.trace.events import Bools, Int64s, Rows
from profkit.trace.statistics import among, distinct_rows

LEAST_TENSORS = 8
"""Tensors: four layers. A copy of fewer takes a tenth of a millisecond."""
_COPY = frozenset(("clone", "copy"))
_MAKING = """
    _to_copy alias clone contiguous copy detach empty empty_like empty_strided fill lift_fresh new_empty resize set to
    zero zeros_like"""
_COPYING = frozenset(_MAKING.split())


class LocatedLines(Struct, frozen=True):
    """Columns over the lines of each call of a function in the located step: the line, the mark around the call, how
    much of backward passes ran before, how many operators run under the line, and how many of them copy a tensor.
    ``only_copies`` are the lines with nothing but copies, of `LEAST_TENSORS` or more."""

    site: Int64s
    call: Int64s
    passed: Int64s
    operators: Int64s
    copies: Int64s
    only_copies: Bools
    _first: Int64s
    _last: Int64s
    _line: Int64s

    def count(self, wanted: Bools) -> Int64s:
        """Under each line, how many of the located step's operators are among the wanted ones."""
        return _count_under(wanted, self._first, self._last, self._line)

    def under(self, place: int, operators: Rows) -> Rows:
        """Those of the located step's operators that run under a line."""
        mine = self._line == place
        parts = [
            operators[at:end] for at, end in zip(self._first[mine].tolist(), self._last[mine].tolist(), strict=True)
        ]
        return np.concatenate(parts)


@derived_once
def located_lines(facts: Facts) -> LocatedLines:
    marks, operators = located_marks(facts), located_operators(facts)
    first, last = np.searchsorted(operators, marks), np.searchsorted(operators, facts.tree.stop[marks])
    lines, line = distinct_rows(marks_around(facts)[marks], facts.trace.events.site[marks])

    def count(wanted: Bools) -> Int64s:
        return _count_under(wanted, first, last, line)

    total, copied, copies = (
        count(np.ones(len(operators), dtype=bool) if kind is None else operators_of(facts.trace, kind)[operators])
        for kind in (None, _COPYING, _COPY)
    )
    return LocatedLines(
        site=facts.trace.events.site[marks[lines]].astype(np.int64),
        call=marks_around(facts)[marks[lines]],
        passed=_passes_before(facts, marks[lines]),
        operators=total,
        copies=copies,
        only_copies=(copied == total) & (copies >= LEAST_TENSORS),
        _first=first,
        _last=last,
        _line=line,
    )


def _count_under(wanted: Bools, first: Int64s, last: Int64s, line: Int64s) -> Int64s:
    before = np.concatenate([[0], np.cumsum(wanted)])
    return np.bincount(line, before[last] - before[first]).astype(np.int64)


def _passes_before(facts: Facts, marks: Int64s) -> Int64s:
    """How much of backward passes has run before each mark: weights that are copied before one are others after it."""
    return np.searchsorted(
        np.sort(facts.trace.events.start_ns[facts.lines.backward]), facts.trace.events.start_ns[marks]
    )


def runs_among(facts: Facts, rows: Rows) -> list[Rows]:
    """These operators of the program in runs: in one step, and no other operator comes in between."""
    every = program_operators(facts)
    mine = among(every, rows)
    ends = np.flatnonzero((np.diff(facts.step_of(every)) != 0) | (np.diff(mine) != 0)) + 1
    return [every[part] for part in stretches(ends, len(every), 1) if mine[part.start]]


def statements_of(site: CallSite | None) -> list[ast.stmt]:
    """The statements that a line begins, as far as it shows them."""
    return parse_statements(site.source + closing_brackets(site.source)) if site else []
