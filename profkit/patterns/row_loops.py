"""Loops over the rows of a tensor that are short and run often: few rows, many calls.

The located step shows the loop and the source of its lines. Whether the rounds need each other is read from that
source, as the operators do not tell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import DECOMPOSITION, MATRIX, VIEW, operators_of
from profkit.patterns.attribution import order_sites
from profkit.patterns.loops.accesses import ITERATING, TINY_ELEMENTS, count_accesses
from profkit.patterns.loops.independent_rounds import rounds_are_independent
from profkit.patterns.loops.located import body_and_called
from profkit.patterns.loops.repeated_lines import RepeatedLines, repeated_lines
from profkit.patterns.program import run_for_the_program, spent_ns
from profkit.trace.events import Rows

_FEWEST_ROWS = 4
"""Loops over two or three rows are the parts of a formula."""
LONG_LIST = 32
"""From this many rounds on, a loop that only gathers results of elementwise operators is one over a list, whether its
tensors are rows or not. Loops over heads, layers or the parts of a state are shorter."""
_RANDOM = """
    bernoulli dropout exponential feature_dropout multinomial native_dropout normal poisson rand rand_like randint
    randn randn_like random randperm rrelu uniform"""
RANDOM = frozenset(_RANDOM.split())
"""Random numbers would differ if they were drawn all at once."""
_OF_A_BATCH = frozenset(("batch_norm", "native_batch_norm", "cudnn_batch_norm", "instance_norm"))
"""Normalisation over a batch gives other results for another batch."""


class RowLoop(Struct, frozen=True):
    """One run of such a loop in the located step: the lines of its operators, the costliest first, its operators, and
    the number of its rounds."""

    lines: tuple[int, ...]
    rows: Rows
    rounds: int


def find_row_loops(facts: Facts) -> Iterator[RowLoop]:
    """Runs of loops whose rounds are independent, and each take at least one row and do little with it."""
    for lines in repeated_lines(facts, _FEWEST_ROWS):
        loop = _read_loop(facts, lines)
        if loop is not None:
            yield loop


def _read_loop(facts: Facts, lines: RepeatedLines) -> RowLoop | None:
    site, rows = facts.trace.events.site, lines.operators(facts)
    if not rows.size or not _is_small(facts, rows):
        return None
    marks = lines.marks(facts)
    own = site[lines.own(facts, marks)]
    rounds = int(np.unique(own[np.isin(own, lines.sites)], return_counts=True)[1].max())
    taken = ~operators_of(facts.trace, ITERATING)[rows] * count_accesses(facts, rows)
    body, called = body_and_called(facts, marks, lines.first)
    if taken.sum() < rounds or len(rows) < 2 * rounds or not body:
        return None
    if not rounds_are_independent(body, called, may_write=True):
        return None
    is_plain = not operators_of(facts.trace, MATRIX)[rows].any() and rounds_are_independent(body, called)
    if rounds >= LONG_LIST and is_plain:
        return None
    return RowLoop(tuple(order_sites(facts.lines.site[rows], spent_ns(facts, rows))), rows, rounds)


def _is_small(facts: Facts, rows: Rows) -> bool:
    """Whether all of these operators work on a few thousand numbers, or take a part of more, and each round could join
    the others."""
    apart = run_for_the_program(facts) | operators_of(facts.trace, RANDOM, DECOMPOSITION, _OF_A_BATCH)
    tiny = (facts.operators.elements[rows] <= TINY_ELEMENTS) | operators_of(facts.trace, VIEW)[rows]
    return bool(tiny.all() and not apart[rows].any())
