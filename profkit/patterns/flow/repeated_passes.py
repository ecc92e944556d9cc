"""Backward passes that go through one graph again, from the same result and with the same weights.

`torch.autograd.grad` of one result by several inputs does that, if each input has a call of its own. The nodes of a
pass come in the order of falling sequence numbers, so a higher one begins the next pass; those whose first nodes have
one number begin at one node. That is one result if the node's operator has no more: `unbind` and `split` have several.
What weights it is given only the source tells: none, or ones, also by a variable that the function sets once.
"""

from __future__ import annotations

import ast
import re

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import ELEMENTWISE, MATRIX, VIEW
from profkit.patterns.places.events import call_site
from profkit.patterns.program import all_nodes, backward_of
from profkit.run.directory import CallSite
from profkit.source.index import parsed_file
from profkit.source.syntax import calls_named, name_called, parse_line
from profkit.trace.events import Bools, Int64s, Rows
from profkit.trace.statistics import distinct, distinct_rows

_SEVERAL = frozenset(
    (
        "broadcast_tensors",
        "chunk",
        "gru",
        "lstm",
        "lstm_cell",
        "rnn_relu",
        "rnn_tanh",
        "split",
        "split_with_sizes",
        "tensor_split",
        "unbind",
        "unsafe_chunk",
        "unsafe_split",
    )
)
_SINGLE = {name.replace("_", "") for name in (ELEMENTWISE | MATRIX | VIEW | {"cat", "mean", "stack", "sum"}) - _SEVERAL}
"""Operators with one result, as their nodes name them: ``MulBackward0``, ``UnsafeViewBackward0``."""
_NODE = re.compile(r"(\w+)Backward\d*$")
_ADDING_UP = "SumBackward"
"""Of ``grad(u.sum(), x)``: each call adds up anew, and its graph is that of ``u`` from there on."""
_WEIGHTS_AT = 2
"""``grad(outputs, inputs, grad_outputs, ...)``."""


class RepeatedPasses(Struct, frozen=True):
    """``nodes`` are those of the measured steps that an earlier pass of the step ran from the same result, in order of
    time; ``first`` are that pass's. ``last`` marks the last node of each later pass. ``later`` are nodes of the step's
    other backward passes that only exist because of them; ``passes`` is the number of passes that begin at one result,
    at most."""

    nodes: Rows
    first: Rows
    last: Bools
    later: Rows
    passes: int


@derived_once
def repeated_passes(facts: Facts) -> RepeatedPasses | None:
    """Those of calls of `torch.autograd.grad`, of all measured steps."""
    nodes = all_nodes(facts)
    nodes = nodes[facts.trace.events.sequence[nodes] >= 0]
    unweighted = _unweighted(facts, nodes)
    if nodes.size < 2 or not unweighted.any():
        return None
    root, number = _roots(facts, nodes)
    step, lane, sequence = facts.step_of(nodes), facts.trace.events.lane[nodes], facts.trace.events.sequence[nodes]
    mine = np.flatnonzero(unweighted & (root >= 0))
    first, kind = distinct_rows(*(one[mine] for one in (step, lane, root, sequence)))
    is_again = number[mine] != number[mine[first]][kind]
    again = mine[is_again]
    if not again.size:
        return None
    rows, passes = nodes[again], number[again]
    later = np.setdiff1d(backward_of(facts, rows), nodes[_differentiates(facts, nodes)])
    _, begun = distinct_rows(step[again], root[again])
    most = max(len(distinct(passes[begun == one])) for one in distinct(begun).tolist())
    begun_by = nodes[mine[first[distinct(kind[is_again])]]]
    return RepeatedPasses(rows, begun_by, np.append(np.diff(passes) != 0, True), later, most + 1)


def _roots(facts: Facts, nodes: Rows) -> tuple[Int64s, Int64s]:
    """For each node the sequence number at which its pass begins, -1 if that may be one of several results, and the
    number of its pass."""
    events = facts.trace.events
    sequence, lane, site, step = (
        events.sequence[nodes],
        events.lane[nodes],
        facts.lines.site[nodes],
        facts.step_of(nodes),
    )
    begins = np.ones(len(nodes), dtype=bool)
    begins[1:] = np.diff(sequence) >= 0
    for same in (lane, site, step):
        begins[1:] |= np.diff(same) != 0
    number = np.cumsum(begins) - 1
    adds_up = facts.trace.where_name(lambda name: _ADDING_UP in name)[nodes]
    is_first = begins & ~adds_up
    is_first[1:] |= begins[:-1] & adds_up[:-1] & ~begins[1:]
    roots = np.full(number[-1] + 1, -1, dtype=np.int64)
    is_known = is_first & facts.trace.where_name(_has_one_result)[nodes]
    roots[number[is_known]] = sequence[is_known]
    return roots[number], number


def _has_one_result(name: str) -> bool:
    node = _NODE.search(name)
    return node is not None and node[1].lower() in _SINGLE


def _unweighted(facts: Facts, nodes: Rows) -> Bools:
    """Whether a node runs for a call of `grad` that gives its result no weights, or ones."""
    return _by_line(facts, nodes, weights_are_ones=True)


def _differentiates(facts: Facts, nodes: Rows) -> Bools:
    """Whether a node runs for any call of `grad`."""
    return _by_line(facts, nodes, weights_are_ones=False)


def _by_line(facts: Facts, nodes: Rows, *, weights_are_ones: bool) -> Bools:
    site = facts.lines.site[nodes]
    wanted = [code for code in distinct(site).tolist() if _calls_grad(facts, code, weights_are_ones)]
    found: Bools = np.isin(site, wanted)
    return found


def _calls_grad(facts: Facts, code: int, weights_are_ones: bool) -> bool:
    place = call_site(facts, code)
    statement = parse_line(place.source) if place is not None and "grad(" in place.source else None
    called = calls_named(statement, "grad") if statement is not None else []
    return bool(called) and (not weights_are_ones or all(_gives_ones(call, place) for call in called))


def _gives_ones(call: ast.Call, place: CallSite | None) -> bool:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "grad_outputs"]
    weights = [*call.args[_WEIGHTS_AT : _WEIGHTS_AT + 1], *named]
    return len(call.args) + len(call.keywords) > 1 and all(_are_ones(one, place) for one in weights)


def _are_ones(weights: ast.expr, place: CallSite | None) -> bool:
    if isinstance(weights, ast.List | ast.Tuple):
        return all(_are_ones(one, place) for one in weights.elts)
    if isinstance(weights, ast.Name) and place is not None:
        file = parsed_file(place.file)
        value = file.only_value(place.line, weights.id) if file is not None else None
        return value is not None and not isinstance(value, ast.Name) and _are_ones(value, place)
    if isinstance(weights, ast.Constant):
        return weights.value is None
    return isinstance(weights, ast.Call) and name_called(weights) in ("ones", "ones_like")
