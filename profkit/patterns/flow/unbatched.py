"""Calls of the located step that could be fewer: which lines make them, and how many would be left.

Calls need each other where one takes what another led to, but for a sum, an extreme or a list of results. Of a loader's
batches only those of one sample count. Which loops without products other rules judge, `loops_apart` tells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import MATRIX, VIEW, base_name, operators_of
from profkit.patterns.flow.data_flow import LocatedFlow, calls_around, located_flow, longest_chain, shared_inputs
from profkit.patterns.flow.equal_calls import EqualCalls, equal_calls, loops_of
from profkit.patterns.flow.loops_apart import comes_from_a_loader, could_share_a_pass
from profkit.patterns.flow.ragged_calls import ragged_calls
from profkit.patterns.loops.independent_rounds import rounds_are_independent
from profkit.patterns.loops.located import body_and_called, lines_between, located_marks, marks_around
from profkit.patterns.loops.loop_source import inputs_of_modules
from profkit.patterns.places.events import call_site
from profkit.patterns.shapes import first_shape, shapes_of
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.statistics import distinct

LEAST = 4
"""Calls, and how many times fewer they could be. Two or three views, towers or scales of one input are an
architecture; from four on it is a loop."""
_MOST_LOOKED_AT = 100
"""Lines whose calls are followed, those with most operators first."""
_WEIGHTED = frozenset(("addmm", "matmul", "mm", "mv"))
"""Products whose weights may stand on either side."""
_WITHOUT_WEIGHTS = frozenset(("dot", "vdot"))
"""Products of two vectors, which both are data."""
_ADDING_UP = frozenset(
    (
        *("add", "sub", "rsub", "maximum", "minimum", "logaddexp", "cat", "stack"),
        *("clone", "copy", "index_put", "index_add", "scatter_add", "zero", "fill"),
    )
)
"""What may take results of earlier rounds only to go on with a sum, an extreme or a list of them."""


class Unbatched(Struct, frozen=True):
    """The calls of one line, how many of them would be left, whether their data flow shows it, not their source,
    whether each has weights of its own that the step has made, whether each has a backward pass of its own, whether
    all take the same tensors, or parts of them (then they are of one size whatever the data), and whether each takes
    another one that was there before the first call."""

    calls: EqualCalls
    left: int
    by_flow: bool
    have_weights: bool = False
    own_passes: bool = False
    of_one_tensor: bool = False
    of_a_list: bool = False


class _Numbers(Struct, frozen=True):
    """The numbers of PyTorch's calls, a row for each run of a line: those that multiply, those that need what they take
    of other runs, and the first and the last."""

    working: Int64s
    binding: Int64s
    spans: Int64s


def find_unbatched(facts: Facts) -> Iterator[Unbatched]:
    """Those that share no operator; of nested ones those that leave out most."""
    flow, judged = located_flow(facts), list[tuple[float, Unbatched]]()
    for calls in itertools.chain(
        itertools.islice(equal_calls(facts, LEAST), _MOST_LOOKED_AT),
        itertools.islice(ragged_calls(facts, LEAST), _MOST_LOOKED_AT),
    ):
        if _are_batches(facts, calls) or (calls.is_ragged and not products_of(facts, calls).any()):
            continue
        found = _judge_by_flow(facts, flow, calls) if flow is not None else None
        found = found or _judge_by_source(facts, calls)
        if found.left * LEAST > len(calls.marks) and not calls.is_ragged and could_share_a_pass(facts, calls):
            found = Unbatched(calls, 1, False, own_passes=True)
        if found.left * LEAST <= len(calls.marks):
            judged.append((calls.operators.size * (1 - found.left / len(calls.marks)), found))
    explained = np.zeros(len(facts.trace.events), dtype=bool)
    for _, found in sorted(judged, key=lambda one: -one[0]):
        if not explained[found.calls.operators].any():
            explained[found.calls.operators] = True
            yield found


def _are_batches(facts: Facts, calls: EqualCalls) -> bool:
    """Whether these are a loader's batches of several samples."""
    return comes_from_a_loader(facts, calls) and rows_of_one(facts, calls) != 1


def _judge_by_flow(facts: Facts, located: LocatedFlow, calls: EqualCalls) -> Unbatched | None:
    """None if the data flow does not tell: it was not followed there, or goes on by numbers that Python reads. Behind
    the calls that were followed, the longest chain grows as in their second half: not at all if each call, or each of
    several sequences, begins anew."""
    number = calls_around(facts, located, calls.operators.ravel()).reshape(calls.operators.shape)
    products = products_of(facts, calls)
    matters = next((of for of in (products, binding(facts, calls)) if of.any()), np.ones_like(products))
    known = (number[:, matters] >= 0).all(axis=1)
    if known.sum() < LEAST or not located.is_known(int(number[known][:, matters].min()), int(number[known].max())):
        return None
    number, count = number[known], len(calls.marks)
    begun, over = number[:, matters].min(axis=1), number.max(axis=1)
    passes, passed = (np.searchsorted(located.flow.backward, at) for at in (begun, over))
    of_step = _have_weights_of_step(facts, located, calls, number, products, calls.marks[known])
    if (passes != passed).any() or of_step is None:
        return Unbatched(calls, count, True)
    calls_of = _Numbers(number[:, matters], number[:, binding(facts, calls)], np.stack([begun, over], axis=1))
    chain = _chains(located, calls_of, passes)
    by_numbers = chain * LEAST > len(number) and bool(located.flow.reads)
    if by_numbers and _chains(located, calls_of, passes, may_follow=True) < chain:
        return None
    half = len(number) // 2
    followed = _Numbers(calls_of.working[:half], calls_of.binding[:half], calls_of.spans[:half])
    grown = chain - _chains(located, followed, passes[:half])
    left = chain + round(grown * (count - len(number)) / (len(number) - half))
    taken = _taken(located, number, calls_of.binding)
    before = {frozenset(maker for maker in one if maker < begun.min()) for one in taken[1:]}
    return Unbatched(calls, max(1, left), True, of_step, of_one_tensor=len({*taken}) == 1, of_a_list=len(before) > 1)


def _taken(located: LocatedFlow, number: Int64s, binds: Int64s) -> list[frozenset[int]]:
    """What the binding operators of each call take from elsewhere, by the calls that made it. The first call may take
    what another line of its round made before any call of this one."""
    pairs = zip(number.tolist(), binds.tolist(), strict=True)
    return [frozenset(m for one in ones for m in located.flow.takes[one]) - set(mine) for mine, ones in pairs]


def binding(facts: Facts, calls: EqualCalls) -> Bools:
    """Which operators of a call make more of what they take than a sum or a view."""
    binds: Bools = ~operators_of(facts.trace, _ADDING_UP, VIEW)[calls.operators[0]]
    return binds


def _chains(located: LocatedFlow, calls: _Numbers, passes: Int64s, may_follow: bool = False) -> int:
    """How many calls are left: between two backward passes as many as the longest chain is long."""
    left = 0
    for one in distinct(passes).tolist():
        rounds: list[list[int]] = calls.spans[passes == one].tolist()
        round_of = {call: turn for turn, (first, last) in enumerate(rounds) for call in range(first, last + 1)}
        works, binds = (frozenset(of[passes == one].ravel().tolist()) for of in (calls.working, calls.binding))
        left += longest_chain(located.flow, round_of, works, binds, may_follow_numbers=may_follow)
    return left


def _have_weights_of_step(
    facts: Facts, located: LocatedFlow, calls: EqualCalls, number: Int64s, products: Bools, marks: Rows
) -> bool | None:
    """False if each product takes the same weights in all calls, or nothing but what its own call has made; True if one
    takes weights that the step has made for it, as in an inner optimisation. None for weights that were there before:
    those of other modules, or other tensors. None, too, for what other lines of the same call of the function have
    made, as attention's keys: its weights are those of these lines."""
    names = [base_name(facts.trace.name_of(row)) for row in calls.operators[0][products].tolist()]
    flow, own, found = located.flow, [frozenset(mine) for mine in number.tolist()], False
    for name, column in zip(names, number[:, products].T.tolist(), strict=True):
        is_own = all(own[turn].issuperset(flow.takes[call]) for turn, call in enumerate(column))
        if name in _WITHOUT_WEIGHTS or is_own or any(shared_inputs(flow, column)[0 if name in _WEIGHTED else 1 :]):
            continue
        weights = [next(iter(flow.takes[call][1:2]), NONE) for call in column]
        if calls.is_ragged and all(own[turn].issuperset({one}) for turn, one in enumerate(weights)):
            continue  # both factors are data: a table of one's own, and what the call makes
        if len({one for one in weights if one < 0}) > 1:
            return None
        if _are_made_inside(facts, located, weights, marks):
            return None
        found |= max(weights) >= 0
    return found


def _are_made_inside(facts: Facts, located: LocatedFlow, weights: list[int], marks: Rows) -> bool:
    """Whether each of these calls lies in the same call of a function as the marked line, each in another one."""
    around, made = marks_around(facts)[marks], located.marks[np.array(weights).clip(min=0)]
    if len(distinct(around)) < len(marks) or (around < 0).any() or min(weights) < 0:
        return False
    return bool(((made > around) & (made < facts.tree.stop[around])).all())


def _judge_by_source(facts: Facts, calls: EqualCalls) -> Unbatched:
    """Where all calls lie in loops of one line without a backward pass, and its source shows that no round needs
    another."""
    start = facts.trace.events.start_ns
    nodes = np.sort(start[facts.lines.backward])
    marks, left = located_marks(facts), 0
    for run in loops_of(facts, calls):
        first, last = int(run[0]), int(run[-1])
        site = call_site(facts, calls.site)
        inside = marks[(marks >= first) & (marks < facts.tree.stop[last])]
        body, called = body_and_called(facts, inside, first)
        varies = site is None or inputs_of_modules(site.source, lines_between(facts, first, last)) is not None
        shown = len(run) >= LEAST and not varies and rounds_are_independent(body, called)
        passes = np.searchsorted(nodes, [start[first], facts.tree.end_ns[last]])
        shown &= bool(passes[0] == passes[1])
        left += 1 if shown else len(run)
    return Unbatched(calls, left, False)


def products_of(facts: Facts, calls: EqualCalls) -> Bools:
    """Which operators of a call multiply matrices."""
    products: Bools = operators_of(facts.trace, MATRIX)[calls.operators[0]]
    return products


def rows_of_one(facts: Facts, calls: EqualCalls) -> int:
    """The most rows that the first product of a call multiplies; 0 if they are not known."""
    return max(rows_of_each(facts, calls), default=0)


def rows_of_each(facts: Facts, calls: EqualCalls) -> list[int]:
    """The rows that the first product of a call multiplies, each number once; none if they are not known."""
    columns = np.flatnonzero(products_of(facts, calls))
    if not columns.size:
        return []
    products = calls.operators[:, columns[0]]
    is_convolution = "conv" in base_name(facts.trace.name_of(int(products[0])))
    _, first = np.unique(facts.trace.events.dims_code[products], return_index=True)
    shapes = [first_shape(shapes_of(facts, row)) for row in products[first].tolist()]
    return sorted({shape[0] if is_convolution else math.prod(shape[:-1]) for shape in shapes if shape})
