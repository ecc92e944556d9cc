"""Gradients are computed with a graph of their own, which no recorded step differentiates.

What it detects
`create_graph=True` in `torch.autograd.grad` or `backward`, where the operators of that backward pass record nodes, and
no later pass of the recording runs any of them. A gradient penalty, a second derivative and a step of meta-learning
that is differentiated need the flag: their passes run these nodes. A line counts only if none of its nodes is ever
needed, in any recorded step; one whose graph grows from step to step does not count. Steps that were not recorded are
not known: a penalty in each sixteenth needs the flag only there.

Why is this bad?
Each operator of the backward pass makes a node, keeps its inputs for it and gives both back later. The graph of the
forward pass stays as well, although its memory could be freed node by node. The flag is often left over from the full
method in code that has gone over to first-order gradients, which it detaches.

Example
    grads = torch.autograd.grad(loss, weights, create_graph=True)
    weights = [w - rate * g.detach() for w, g in zip(weights, grads)]

Use instead
    grads = torch.autograd.grad(loss, weights)
    weights = [w - rate * g for w, g in zip(weights, grads)]

    grads = torch.autograd.grad(loss, weights, create_graph=number % 16 == 0)  # if only such steps differentiate them

How the saving is estimated
Each node costs 1 to 2.4 µs, as measured on one machine: making it, keeping its inputs, and giving both back. The
backward nodes that made it get shorter by 1.7 µs for each, as a share of what such a node usually takes, but at most by
half. Memory is left out.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.steps.backward import backward_nodes
from profkit.patterns import Places, call_site, locations_of, spent_ns, times_per_step
from profkit.patterns.retention.growing_graphs import LEAST_PASS, growing_graphs
from profkit.rules.base import LOW_FROM, Facts, Kind, Need, Suspicion, Suspicions, format_count, rule
from profkit.savings import Edit, shrink
from profkit.source.syntax import closing_brackets, switched_on
from profkit.trace import Category, Rows, among, distinct, median

_FLAG = "create_graph"
_LEAST_STEPS = 2
"""A pass over the graph of the step before shows in the second."""
_NODE_NS, _UNCERTAINTY = 1_700, 0.5
_MOST_OF_PASS = 0.5
_LEAVE_OUT = "Leave out `create_graph=True`."
_INSTEAD = "Use `retain_graph=True` instead: a later pass runs the graph of the forward pass again."
_ELSEWHERE = " If steps that were not recorded differentiate these gradients, set the flag in those only."


class _Nodes(Struct, frozen=True):
    """The operators of backward passes that recorded nodes, on the main thread, in order of time; and all nodes that
    a backward pass ran."""

    makers: Rows
    ran: Rows


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES)
def needless_second_order_graph(facts: Facts) -> Suspicions:
    """One finding for each line that asks for such a graph."""
    if len(facts.steps) < _LEAST_STEPS or growing_graphs(facts):
        return
    found = _find(facts)
    numbers, site = facts.trace.events.sequence, facts.lines.site
    ran = distinct(numbers[found.ran])
    for line in distinct(site[found.makers]).tolist():
        place = call_site(facts, line)
        if place is None or not _asks_for_it(place.source):
            continue
        mine = found.makers[site[found.makers] == line]
        measured = mine[facts.measured[mine]]
        if len(measured) >= LEAST_PASS * facts.steps.measured_count and not among(numbers[mine], ran).any():
            yield _suspect(facts, line, measured, found.ran)


def _asks_for_it(line: str) -> bool:
    """Whether a line says ``create_graph=True``. Of a call that goes on in the next line its name must do."""
    if _FLAG in line:
        return any(_FLAG in names for names in switched_on(line))
    called = line.split("(", maxsplit=1)[0].rstrip()
    return bool(closing_brackets(line)) and called.endswith(("autograd.grad", "backward"))


def _find(facts: Facts) -> _Nodes:
    """An operator makes the node whose number is the next one's for the last time: numbers rise behind it. Without a
    graph of its own a backward pass has no numbers."""
    events, nodes = facts.trace.events, backward_nodes(facts.trace)
    here = (events.category == Category.OPERATOR) & ~nodes & (events.sequence >= 0)
    rows = np.flatnonzero(here & (events.lane == facts.steps.main_lane))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    makers = rows[:-1][np.diff(events.sequence[rows]) > 0]
    return _Nodes(
        makers[facts.lines.backward[makers]], np.flatnonzero(facts.tree.outermost(nodes) & (events.sequence >= 0))
    )


def _suspect(facts: Facts, line: int, makers: Rows, ran: Rows) -> Suspicion:
    count = times_per_step(facts, makers)
    return Suspicion(
        message=f"`create_graph=True` records {format_count(count, 'node')} a step in the backward pass. In the "
        "recorded steps no later pass runs them: nothing there differentiates these gradients.",
        fix=(_INSTEAD if _walks_again(facts, line, ran) else _LEAVE_OUT) + _ELSEWHERE,
        edit=_without_nodes(facts, makers),
        worth=LOW_FROM,
        confidence=0.85,
        count=count,
        places=Places.of(locations_of(facts, [line])),
        evidence={"nodes_per_step": count},
    )


def _without_nodes(facts: Facts, makers: Rows) -> Edit:
    """Each backward node gets shorter by the share that its makers cost of what such a node usually takes: a node that
    the machine held up is no measure."""
    around = facts.tree.nearest_ancestor(facts.tree.outermost(backward_nodes(facts.trace)), of=makers)
    passed, made = np.unique(around[around >= 0], return_counts=True)
    spent, names = spent_ns(facts, passed), facts.trace.events.name_code[passed]
    usual = np.ones(len(passed))
    for name in distinct(names).tolist():
        usual[names == name] = max(median(spent[names == name]), 1)
    share = np.minimum(made * _NODE_NS / usual, _MOST_OF_PASS)
    return shrink(passed, ((1 - share) * spent).astype(np.int64), _UNCERTAINTY)


def _walks_again(facts: Facts, line: int, ran: Rows) -> bool:
    """Whether a node of the forward pass that this line's passes run is run again."""
    numbers = facts.trace.events.sequence[ran]
    known, counts = np.unique(numbers, return_counts=True)
    mine = among(numbers, numbers[facts.lines.site[ran] == line])
    return bool(among(numbers[mine], known[counts > 1]).any())
