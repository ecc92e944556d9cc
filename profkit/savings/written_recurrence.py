"""Loops over time that call a recurrent cell written in the program, and what a single call would take instead."""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, VIEW, operators_of
from profkit.derive.operators.operators import has_type
from profkit.patterns.loops.carried_state import has_steady_weights, read_carried_state
from profkit.patterns.loops.located import sites_between
from profkit.patterns.loops.rounds import Rounds, find_rounds, mark_chains
from profkit.patterns.loops.written_cells import FORMS, PASSING, WrittenCells, find_written_cells
from profkit.patterns.places.events import call_sites
from profkit.patterns.program import backward_of, located_operators, program_operators, spent_ns
from profkit.patterns.shapes import by_operator, result_of_linear
from profkit.savings.edits import Edit, combine, shrink, shrink_spans
from profkit.savings.pricing import CALL_NS, PRODUCTS, arithmetic_ns, call_ns, scale_operators
from profkit.trace.events import Bools, Int64s, Rows
from profkit.trace.statistics import distinct

LEAST_ROUNDS = 8
"""Refinement and message passing take fewer steps; sequences are longer."""
NEW_STATES = frozenset(("full", "new_zeros", "normal", "randn", "zeros"))
"""A cell without a state creates one, of zeros."""
_OF_INPUT = frozenset(("dropout", "feature_dropout", "native_dropout", "one_hot"))
"""Besides elementwise operators on anything but a state, these prepare an input inside a module."""
_JOINING = frozenset(("cat", "concat"))
UNCERTAINTY = 0.4
"""The library's products over the whole sequence were between a third faster and a third slower than a cell's."""


class WrittenLoop(Struct, frozen=True):
    """One run of time steps. ``site`` is the line of the loop that leads to the cell. ``operators`` belong to the
    cells; ``views`` and ``others`` are the other operators between the first and the last."""

    site: int
    cell: str
    rounds: int
    operators: Rows
    of_input: Rows
    views: Rows
    others: Rows


class _Source(Struct, frozen=True):
    """A loop as the located step shows it: its line, the lines that run below it or hold the cell's operators, and
    whether only the cell assigns the state."""

    site: int
    inside: frozenset[int]
    keeps_state: bool


def find_written_loops(facts: Facts) -> Iterator[WrittenLoop]:
    """Runs of cells, one in each round of a loop over a sequence, each continuing with the state of the one before."""
    sources = _read_loops(facts)
    if not sources:
        return
    rows = program_operators(facts)
    cells = find_written_cells(facts, rows)
    if len(cells.form) < LEAST_ROUNDS:
        return
    first, last = _ends(cells)
    site = facts.lines.site[rows]
    touches = _touches_state(facts, rows, cells)
    inside = np.isin(site, [code for source in sources.values() for code in source.inside])
    inside |= operators_of(facts.trace, NEW_STATES)[rows]  # another sequence begins, on whatever line
    touched, spoilt = (np.concatenate([[0], np.cumsum(mask)]) for mask in (touches, touches & inside))
    anchors = site[_anchors(facts, rows, cells)]
    keeps = np.array([code in sources and sources[code].keeps_state for code in anchors.tolist()], dtype=bool)
    known = np.isin(anchors, list(sources))
    step = facts.step_of(rows[first])
    passes = np.cumsum(facts.lines.backward)[rows[first]]
    here, after = first[:-1], first[1:]
    joined = (touched[after] == touched[here]) | (keeps[1:] & (spoilt[after] == spoilt[here]))
    for column in (step, passes, anchors, cells.form, cells.batch, cells.hidden):
        joined &= column[1:] == column[:-1]
    for part in np.split(np.arange(len(first)), np.flatnonzero(~joined) + 1):
        if len(part) >= LEAST_ROUNDS and known[part[0]]:
            mine = np.isin(cells.owner, part)
            between = (np.arange(len(rows)) > first[part[0]]) & (np.arange(len(rows)) < last[part[-1]])
            views = operators_of(facts.trace, VIEW)[rows]
            yield WrittenLoop(
                sources[int(anchors[part[0]])].site,
                FORMS[cells.form[part[0]]].cell,
                len(part),
                rows[mine],
                rows[mine & cells.of_input],
                rows[between & views],
                rows[between & ~mine & ~views],
            )


def _read_loops(facts: Facts) -> dict[int, _Source]:
    """By the line of a cell's first product: the loop around it, if all loops that lead there take a sequence."""
    rows = located_operators(facts)
    cells = find_written_cells(facts, rows)
    if len(cells.form) < LEAST_ROUNDS:
        return {}
    chains = mark_chains(facts, rows)
    anchors = _anchors(facts, rows, cells)
    found: dict[int, list[_Source | None]] = {}
    for rounds in find_rounds(facts, rows[anchors]):
        if len(rounds.marks) >= LEAST_ROUNDS:
            source = _read_loop(facts, rows, cells, chains, rounds)
            for code in distinct(facts.lines.site[rounds.events]).tolist():
                found.setdefault(code, []).append(source)
    return {
        code: sources[0]
        for code, sources in found.items()
        if sources[0] is not None and all(source == sources[0] for source in sources)
    }


def _read_loop(facts: Facts, rows: Rows, cells: WrittenCells, chains: Int64s, rounds: Rounds) -> _Source | None:
    """What the lines of one loop show; None if they do not show that it takes a sequence."""
    site, column = facts.trace.events.site, chains[:, rounds.level]
    numbers = cells.owner[np.searchsorted(rows, rounds.events)]
    mine = np.isin(cells.owner, numbers)
    if (column[mine] < 0).any():
        return None
    lines = distinct(site[column[mine]])
    during = (rows >= rows[mine][0]) & (column >= 0) & np.isin(site[column], lines)
    during &= column <= column[mine].max()
    if not _only_prepares_input(facts, rows, cells, column, numbers):
        return None
    body = sites_between(facts, int(rounds.marks[0]), int(rounds.marks[-1]))
    of_cell = sorted(call_sites(facts, lines), key=lambda place: place.line)
    carried = read_carried_state([place.source for place in of_cell], [place.source for place in body])
    steady = has_steady_weights([place.source for place in call_sites(facts, facts.lines.site[rows[mine]])], set())
    if not carried.takes_sequence or not steady:
        return None
    inside = frozenset(distinct(facts.lines.site[rows[during]]).tolist())
    return _Source(int(site[rounds.marks[0]]), inside, carried.keeps_state)


def _only_prepares_input(facts: Facts, rows: Rows, cells: WrittenCells, column: Int64s, numbers: Int64s) -> bool:
    """Whether the operators below a loop's line and before the cell only prepare an input. Otherwise they may attend
    with the state, which the loop's own lines would not show."""
    first, _ = _ends(cells)
    begin = first[numbers]
    order = np.argsort(column[begin])
    marks, begin = column[begin][order], begin[order]
    at = np.searchsorted(marks, column).clip(max=len(marks) - 1)
    before = (marks[at] == column) & (np.arange(len(rows)) < begin[at]) & ~operators_of(facts.trace, PASSING)[rows]
    allowed = operators_of(facts.trace, ELEMENTWISE, _OF_INPUT)[rows] & ~_touches_state(facts, rows, cells)
    return not (before & ~allowed).any()


def _ends(cells: WrittenCells) -> tuple[Rows, Rows]:
    """The positions of each cell's first and last operator."""
    at = np.flatnonzero(cells.owner >= 0)
    first, last = np.full(len(cells.form), len(cells.owner)), np.zeros(len(cells.form), dtype=np.int64)
    np.minimum.at(first, cells.owner[at], at)
    np.maximum.at(last, cells.owner[at], at)
    return first, last


def _anchors(facts: Facts, rows: Rows, cells: WrittenCells) -> Rows:
    """The position of each cell's first product."""
    at = np.flatnonzero((cells.owner >= 0) & operators_of(facts.trace, frozenset(("linear",)))[rows])
    anchors = np.full(len(cells.form), len(cells.owner))
    np.minimum.at(anchors, cells.owner[at], at)
    return anchors


def _touches_state(facts: Facts, rows: Rows, cells: WrittenCells) -> Bools:
    """The operators outside the cells that may replace a state: they take or give something of its shape. Cutting a
    state off from the backward pass counts too."""
    states = set(zip(cells.batch.tolist(), cells.hidden.tolist(), strict=True))
    return by_operator(facts, rows, lambda name, shapes: _touches(name, shapes, states)) & (cells.owner < 0)


def _touches(name: str, shapes: list[tuple[int, ...]], states: set[tuple[int, int]]) -> bool:
    return (name not in PASSING or name == "detach") and may_give_state(name, shapes, states)


def may_give_state(name: str, shapes: list[tuple[int, ...]], states: Container[tuple[int, ...]]) -> bool:
    """Whether an operator may give a state: it takes something of that shape or creates one. For products the weights
    decide."""
    if name == "linear":
        return result_of_linear(shapes) in states
    return name in NEW_STATES or any(shape in states for shape in shapes)


def call_written_once(facts: Facts, loops: list[WrittenLoop]) -> Edit:
    """Each loop takes the time of one call for the sequence, and of one call of each other operator."""
    start = np.array([facts.trace.events.start_ns[loop.operators[0]] for loop in loops])
    end = np.array([facts.tree.end_ns[loop.operators[-1]] for loop in loops])
    kept = np.array([_kept_on_host_ns(facts, loop) for loop in loops])
    edit_of = _kernels_once if facts.device.present else _nodes_once
    return combine([shrink_spans(start, end, kept, UNCERTAINTY), *(edit_of(facts, loop) for loop in loops)])


def _kept_on_host_ns(facts: Facts, loop: WrittenLoop) -> int:
    if facts.device.present:
        return int(spent_ns(facts, np.concatenate([loop.operators, loop.others])).sum()) // loop.rounds
    once = _once_ns(facts, loop.others, loop.rounds, call_ns(facts))
    return int(_kept_ns(facts, loop).sum() + once.sum())


def _nodes_once(facts: Facts, loop: WrittenLoop) -> Edit:
    """The backward pass on the host."""
    others = np.setdiff1d(backward_of(facts, loop.others), backward_of(facts, loop.operators))
    joining = loop.operators[operators_of(facts.trace, _JOINING)[loop.operators]]
    vanishing = backward_of(facts, np.concatenate([joining, loop.views]))
    joined = backward_of(facts, loop.operators if _in_one_call(facts, loop) else loop.of_input)
    return combine(
        [
            shrink(others, _once_ns(facts, others, loop.rounds, CALL_NS), UNCERTAINTY),
            shrink(vanishing, np.zeros(len(vanishing), dtype=np.int64), UNCERTAINTY),
            shrink(joined, arithmetic_ns(facts, joined), UNCERTAINTY),
        ]
    )


def _kernels_once(facts: Facts, loop: WrittenLoop) -> Edit:
    """The products stay on the device; the operators between them become part of the library's kernels."""
    own = np.sort(np.concatenate([loop.operators, loop.views]))
    products = facts.tree.holding(operators_of(facts.trace, PRODUCTS))
    return combine(
        [
            scale_operators(facts, rows, products[rows].astype(float), UNCERTAINTY, launch_kept=1 / loop.rounds)
            for rows in (own, backward_of(facts, own))
        ]
    )


def _in_one_call(facts: Facts, loop: WrittenLoop) -> bool:
    """Whether a CPU library has the cell. Otherwise PyTorch itself runs it for each time step."""
    return loop.cell == "LSTM" and not has_type(facts.trace, "double")[loop.operators].any()


def _kept_ns(facts: Facts, loop: WrittenLoop) -> Int64s:
    """What stays of each operator of the cells. In a library: its arithmetic. Otherwise everything but the input's
    product stays, and if that was one product with the state's, an addition replaces the concatenation."""
    if _in_one_call(facts, loop):
        return arithmetic_ns(facts, loop.operators)
    joins = operators_of(facts.trace, _JOINING)[loop.operators]
    kept = np.where(joins, round(call_ns(facts)), spent_ns(facts, loop.operators))
    return np.where(np.isin(loop.operators, loop.of_input), arithmetic_ns(facts, loop.operators), kept)


def _once_ns(facts: Facts, rows: Rows, rounds: int, call: float) -> Int64s:
    """What stays of operators, or nodes, that are called once for all rounds: the arithmetic of products, a share of
    tables that are written whole, and everything but the call of the others."""
    spent = spent_ns(facts, rows)
    products = facts.tree.holding(operators_of(facts.trace, PRODUCTS))[rows]
    tables = facts.tree.holding(operators_of(facts.trace, frozenset(("embedding_dense_backward",))))[rows]
    once = (spent - round(call)).clip(min=0)
    return np.where(products, arithmetic_ns(facts, rows), np.where(tables, spent // rounds, once))
