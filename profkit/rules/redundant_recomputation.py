"""The same inputs go through the same operators again, and the result was there.

What it detects
Calls of PyTorch with the arguments of an earlier call of the same function: the same memory, not written to since (or
what such calls made of it), with equal numbers and options and in the same modes. Either both calls lie in one step, as
if each layer computes one normalisation of the same graph, or two losses run one encoder on the same batch. Or the next
step makes the call again, as if each forward pass builds a mask, or a frozen model runs on the same data in each epoch.
Not reported: calls that draw random numbers, whose result somebody writes into, or whose graph a backward pass has
freed meanwhile; calls in a backward pass, where activations are computed again on purpose; and buffers of zeros, which
are two on purpose. Equal numbers in other memory are not the same. A program whose steps all compute the same is a
benchmark, and not judged.

Why is this bad?
The second result holds the same numbers as the first, and its backward pass adds up what one pass could do at once.

Example
    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index, normalise(edge_index))
        return x

Use instead
    def forward(self, x, edge_index):
        norm = normalise(edge_index)
        for layer in self.layers:
            x = layer(x, edge_index, norm)
        return x

How the saving is estimated
The calls that repeat others vanish with their backward nodes, and with Python's time between two of them at one line.
Of a weight that a parametrization makes anew, the Python that PyTorch runs around it vanishes too, as far as it is the
same at all such weights and at most 50 µs for each. The memory that keeping the result takes does not count.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.families import VIEW, operators_of
from profkit.patterns import (
    Places,
    call_site,
    in_most_steps,
    named_operators,
    program_operators,
    runs_inside_a_call,
    spent_ns,
    times_per_step,
)
from profkit.patterns.loops.located import call_marks, marks_around, ways_apart
from profkit.patterns.program import repeating_below
from profkit.patterns.transfers.faults import TransferFault, faulty_transfers
from profkit.rules.base import (
    LOW_FROM,
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    Watch,
    format_count,
    known_recomputation,
    pick_form,
    rule,
)
from profkit.run.directory import why_unwatched
from profkit.savings import Edit, combine, leave_out
from profkit.savings.pricing import leave_out_around
from profkit.trace import NONE, Bools, Category, Int64s, Rows, distinct, distinct_rows

_FILLS = tuple(
    f"aten::{name}"
    for name in (
        "arange",
        "eye",
        "full",
        "full_like",
        "linspace",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "zeros",
        "zeros_like",
    )
)
"""Filling memory with given numbers computes nothing, just like a view: keeping the result is hardly faster than making
it anew."""
_CHECKS = (
    "aten::_local_scalar_dense",
    "aten::_to_copy",
    "aten::clone",
    "aten::detach",
    "aten::empty",
    "aten::is_nonzero",
    "aten::item",
    "aten::lift_fresh",
    "aten::to",
)
"""What a function may do with its arguments before it computes."""
_WHOLE = 0.95
"""Of the operators' time below a line: the rest are checks of shapes and views, and the line's whole call repeats."""
_LEAST_INSIDE = MEDIUM_FROM
"""If a library does it, which users have to look up or work around."""
_BENCHMARK = 0.8
"""A program that computes one thing again and again to time it repeats everything but the end of its step. One that
prepares again what its steps have in common then computes something with it, and with other data. A step that trains
changes weights, so what repeats in it does not depend on them."""
_UNCERTAINTY = 0.2
"""Nothing is modelled; but what runs next may find less of its input in the cache, and memory is kept for longer."""


_REMADE = "aten::_weight_norm"
"""Only `torch.nn.utils` calls it: for each use of a weight, through several Python functions."""
_PARAMETRIZING_NS = 50_000
"""Of Python, a weight takes 24 µs as a parametrization and 16 of the older kind (torch 2.13, Xeon). Recorded on a busy
machine it takes up to twice as long."""


class _Calls(Struct, frozen=True):
    """Calls of the located step whose result existed already, by their marks. ``first`` is the mark of the call in the
    same step that this one repeats, else `NONE`; ``is_each`` says that the next step makes the call again.

    ``line`` and ``first_line`` are the marks of the lines to name: if a function does nothing else, the line that calls
    it. If one line makes both calls, ``parting`` and ``first_parting`` are the innermost marks that tell the ways to it
    apart.
    """

    rows: Rows
    first: Rows
    is_each: Bools
    line: Rows
    first_line: Rows
    parting: Rows
    first_parting: Rows


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS)
def redundant_recomputation(facts: Facts) -> Suspicions:
    """Group the calls by the line that makes them, and by whether both were in one step."""
    calls = _find_calls(facts)
    rows, call = _operators_of(facts, calls)
    each_ns, all_ns = (spent_ns(facts, of).sum() for of in (rows[calls.is_each[call]], program_operators(facts)))
    trains = bool(facts.lines.backward.any() or facts.optimizing.any())
    if not trains and (each_ns > _BENCHMARK * max(int(all_ns), 1) or _repeats_all_it_saw(facts)):
        raise CannotLook("each step computes what the one before did, as a benchmark does, on purpose")
    site = facts.trace.events.site[calls.line]
    ended, is_silent = why_unwatched(facts.run, Watch.CALLS), True
    for code in distinct(site).tolist():
        mine = (site == code)[call]
        is_again = calls.first[call] >= 0
        is_each = not (mine & is_again & ~calls.is_each[call]).any()
        chosen = mine if is_each else mine & is_again
        for found in _judge(facts, calls, rows[chosen], call[chosen], is_each):
            is_silent = False
            yield found
    if ended and is_silent:  # the watch saw the located step, but not whether the next one repeats it
        raise CannotLook(ended)


def _repeats_all_it_saw(facts: Facts) -> bool:
    """Whether the next step makes nearly all calls again that the watch looked at. Of a step with many calls it looks
    at some, so what it did not see proves nothing."""
    known = facts.run.recomputation
    return known is not None and known.looked_at > 0 and len(known.each_step) > _BENCHMARK * known.looked_at


def _judge(facts: Facts, calls: _Calls, rows: Rows, call: Int64s, is_each: bool) -> Suspicions:
    """Judge one line's operators, given with the numbers of their calls."""
    where = _place(facts, calls.line[call])
    computes = ~(named_operators(facts, *_FILLS) | operators_of(facts.trace, VIEW))[rows]
    if where is None or not computes.any() or not in_most_steps(facts, rows):
        return
    first = _place(facts, calls.first_line[call])
    ways = [_place(facts, part[call]) for part in (calls.first_parting, calls.parting)]
    count = times_per_step(facts, rows)
    yield Suspicion(
        message=f"{format_count(count, 'operator')} a step {pick_form(count, 'computes', 'compute')} "
        + (_SAME_EACH if is_each else _same_again(where, first, ways)),
        fix=_fix(facts, rows, is_each),
        rows=rows,
        places=Places.of(
            [where, _place(facts, marks_around(facts)[calls.rows[call]])] if is_each else [where, first, *ways]
        ),
        edit=_without(facts, rows, calls.line[call]),
        worth=_LEAST_INSIDE if runs_inside_a_call(facts, rows) else LOW_FROM,
        confidence=0.8 if is_each else 0.9,
        count=count,
        evidence={"operators_per_step": count},
    )


_KEEP = (
    "Compute it once and pass the result on: as an argument, or as an attribute that is set where the inputs "
    "are. A result that both places need with gradients may be shared too."
)
_SAME_EACH = "again what the step before has computed from the same inputs."
_ONCE = (
    "Compute it once, before the loop or where the module is made, and again only when its inputs change. A "
    "table or a mask fits into `register_buffer`; PyG's `GCNConv` on one graph takes `cached=True`."
)


_FOLD = (
    "A parametrization makes the weight anew in each pass. For inference make it a plain one, once: "
    '`torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")`, or `remove_weight_norm(layer)` for the '
    "older kind. In training `with torch.nn.utils.parametrize.cached():` around the passes of a step makes it once."
)


def _without(facts: Facts, rows: Rows, line: Rows) -> Edit:
    """The operators vanish, and for a parametrization also PyTorch's Python around them."""
    remade = rows[named_operators(facts, _REMADE)[rows]]
    gone = leave_out(facts, rows, line, 0.0, _UNCERTAINTY)
    return combine([gone, leave_out_around(facts, remade, _PARAMETRIZING_NS, _UNCERTAINTY)]) if remade.size else gone


def _fix(facts: Facts, rows: Rows, is_each: bool) -> str:
    if named_operators(facts, _REMADE)[rows].any():
        return _FOLD
    return _ONCE if is_each else _KEEP


def _place(facts: Facts, marks: Rows) -> Location | None:
    """The line of the first of the marks."""
    site = call_site(facts, int(facts.trace.events.site[marks[0]])) if marks.size and marks[0] >= 0 else None
    return None if site is None else Location.of(site)


def _same_again(where: Location, first: Location | None, ways: list[Location | None]) -> str:
    if first is not None and first != where:
        known = f"first at {_name(first, where)}"
    else:
        names = [_name(way, where) for way in ways if way is not None and way != where]
        known = "first at this line too" + (f", called from {' and '.join(dict.fromkeys(names))}" if names else "")
    return f"again what the same step has already computed from the same inputs, {known}."


def _name(place: Location, where: Location) -> str:
    return f"line {place.line}" if place.file == where.file else f"{place.file}:{place.line}"


def _find_calls(facts: Facts) -> _Calls:
    """What the run says of the located step's calls, with their lines."""
    known = known_recomputation(facts)
    mark_of = call_marks(facts)
    again = np.array([*known.again, (NONE, NONE)], dtype=np.int64)
    again = again[((again >= 0) & (again < len(mark_of))).all(axis=1)]
    each = np.array([number for number in known.each_step if 0 <= number < len(mark_of)], dtype=np.int64)
    again = again[~np.isin(again[:, 0], each) & (mark_of[again] >= 0).all(axis=1)]
    each = each[mark_of[each] >= 0]
    rows = mark_of[np.concatenate([again[:, 0], each])]
    first = np.concatenate([mark_of[again[:, 1]], np.full(len(each), NONE)])
    is_each = np.isin(np.concatenate([again[:, 1], each]), each)
    whole = _do_nothing_else(facts, facts.tree.under(facts.trace.mask_of(rows)))
    line, first_line = _lines_of(facts, rows, first, whole)
    named = line >= 0
    lines = line[named], first_line[named]
    return _Calls(rows[named], first[named], is_each[named], *lines, *ways_apart(facts, *lines))


def _do_nothing_else(facts: Facts, needless: Bools) -> Bools:
    """The marked lines in calls of functions that do hardly anything but what is needless."""
    events, tree = facts.trace.events, facts.tree
    took = np.where(tree.outermost(events.category == Category.OPERATOR), tree.end_ns - events.start_ns, 0)
    total, wasted = tree.total_under(took), tree.total_under(np.where(needless, took, 0))
    lines = np.flatnonzero(events.category == Category.LINE_MARK)
    functions = {(site.file, site.function): number for number, site in enumerate(facts.callsites)}
    of_site = np.array([*(functions[site.file, site.function] for site in facts.callsites), NONE], dtype=np.int64)
    site = events.site[lines]
    function = of_site[np.where((site >= 0) & (site < len(facts.callsites)), site, NONE)]
    _, call = distinct_rows(marks_around(facts)[lines], function)
    whole = np.bincount(call, wasted[lines]) >= _WHOLE * np.bincount(call, total[lines]).clip(min=1)
    # However short: what is computed of other data shows that the call as a whole is not the same.
    plain = named_operators(facts, *_FILLS, *_CHECKS) | operators_of(facts.trace, VIEW)
    other = tree.total_under(((took > 0) & ~needless & ~plain).astype(np.int64))
    whole &= np.bincount(call, other[lines]) == 0
    return facts.trace.mask_of(lines[whole[call]])


def _lines_of(facts: Facts, rows: Rows, first: Rows, whole: Bools) -> tuple[Rows, Rows]:
    """For each call the mark of the line to name: the one that makes it or, as long as the function around it does
    nothing else, the one that calls that function. For the call that it repeats, the mark equally many lines further
    out."""
    above = marks_around(facts)
    line, first_line = above[rows], np.where(first >= 0, above[first], NONE)
    while True:
        rises = (line >= 0) & whole[line] & (above[line] >= 0)
        if not rises.any():
            return line, first_line
        line = np.where(rises, above[line], line)
        first_line = np.where(rises & (first_line >= 0), above[first_line], first_line)


def _operators_of(facts: Facts, calls: _Calls) -> tuple[Rows, Int64s]:
    """The measured steps' operators that repeat those of these calls, and the number of the call. Not those that send a
    tensor to the device again, which `repeated-transfer` reports."""
    rows, mark = repeating_below(facts, facts.trace.mask_of(calls.rows))
    known = facts.trace.mask_of(faulty_transfers(facts, TransferFault.REPEATED).place)[rows]
    rows, mark = rows[~known], mark[~known]
    order = np.argsort(calls.rows, kind="stable")
    return rows, order[np.searchsorted(calls.rows[order], mark)]
