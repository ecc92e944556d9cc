"""Gradients of several results of one graph are taken one after the other, each by a backward pass of its own.

What it detects
A line that goes through the same nodes of a graph four times or more in a step: rows of a Jacobian or a Hessian, a
gradient for each class or for each of several losses. The source of the loop has to show that no pass needs another's
result, or the line is a comprehension, or a call of `jacobian` or `hessian`. Not reported: products with a Hessian in a
loop that goes on by them, as conjugate gradients do; graphs that differ, as those of accumulated batches; and backward
passes in another thread, as on a device. A pass for each input of one result is `repeated-backward-pass`.

Why is this bad?
Each pass calls every node of the graph anew, mostly on few numbers, and Python starts each pass. With a dimension for
the results one pass does the same arithmetic.

Example
    rows = [torch.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(len(y))]

Use instead
    jacobian, = torch.autograd.grad(y, x, torch.eye(len(y)), is_grads_batched=True)

How the saving is estimated
What the nodes compute and move stays. Dispatch, and Python between the passes, are paid for one pass, where the nodes
were walked several times. `is_grads_batched` costs some of that again, which is why the range is wide.
"""

from __future__ import annotations

import ast

import numpy as np

from profkit.patterns import Places, call_site, in_most_steps
from profkit.patterns.flow.repeated_passes import repeated_passes
from profkit.patterns.loops.independent_rounds import rounds_are_independent
from profkit.patterns.loops.located import body_and_called, located_marks, marks_around
from profkit.patterns.program import all_nodes
from profkit.rules.base import MEDIUM_FROM, Facts, Kind, Location, Need, Suspicion, Suspicions, rule
from profkit.savings.one_call import join_passes
from profkit.source.syntax import parse_line
from profkit.trace import Bools, Int64s, Rows, among, distinct

_LEAST = 4
"""Passes: two or three losses of one trunk are an architecture."""
_BY_ROWS = ("jacobian", "hessian")
"""Functions of `torch.autograd.functional` that go through a graph once for each row."""
_FIX = (
    "Take all of them in one pass: `torch.autograd.grad(y, x, torch.eye(len(y)), is_grads_batched=True)`, with a row "
    "of weights for each result that is wanted. Of a function, `torch.func.jacrev` or `hessian` do it, and with "
    "`torch.func.vmap` around them for each sample. `torch.autograd.functional.jacobian` takes `vectorize=True`."
)


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES)
def gradients_one_by_one(facts: Facts) -> Suspicions:
    """One finding for the passes of a line."""
    nodes = all_nodes(facts)
    times = _times(facts, nodes)
    chosen = (times >= _LEAST) & ~_by_several_inputs(facts, nodes)
    nodes, times = nodes[chosen], times[chosen]
    site = facts.lines.site[nodes]
    for code in distinct(site[site >= 0]).tolist():
        here = site == code
        rows, passes = nodes[here], int(np.median(times[here]))
        place = call_site(facts, code)
        if place is not None and in_most_steps(facts, rows) and _are_independent(facts, code):
            yield Suspicion(
                message=f"{passes:,} backward passes a step go through the same graph, one after the other: none needs "
                "another's result.",
                fix=_FIX,
                rows=rows,
                edit=join_passes(facts, rows, 1 / passes),
                worth=MEDIUM_FROM,
                confidence=0.8,
                count=passes,
                places=Places.of([Location.of(place)]),
                evidence={"passes": passes, "nodes_per_pass": len(rows) // (passes * facts.steps.measured_count)},
            )


def _by_several_inputs(facts: Facts, nodes: Rows) -> Bools:
    """Passes from one result, one for each input, are what `repeated-backward-pass` tells."""
    known = repeated_passes(facts)
    return among(nodes, nodes[:0] if known is None else np.concatenate([known.first, known.nodes]))


def _times(facts: Facts, nodes: Rows) -> Int64s:
    """For each backward node how often its line runs it in its step; 0 if it has no number."""
    events = facts.trace.events
    keys = np.stack(
        [facts.step_of(nodes), events.sequence[nodes], events.name_code[nodes], facts.lines.site[nodes]], axis=1
    )
    _, kind, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return np.where(events.sequence[nodes] >= 0, count[kind.ravel()], 0)


def _are_independent(facts: Facts, code: int) -> bool:
    """By the text of the line, or of the loop around it."""
    place, marks = call_site(facts, code), located_marks(facts)
    mine = marks[facts.trace.events.site[marks] == code]
    if place is None or not mine.size:
        return False
    statement = parse_line(place.source)
    parts = list(ast.walk(statement)) if statement is not None else []
    if any(isinstance(part, ast.ListComp | ast.GeneratorExp) for part in parts) or _calls_by_rows(place.source):
        return True
    around = marks_around(facts)[mine]
    run = mine[around == around[0]]
    inside = marks[(marks >= run[0]) & (marks < facts.tree.stop[run[-1]])]
    return len(run) >= _LEAST and rounds_are_independent(
        *body_and_called(facts, inside, int(run[0])), may_differentiate=True
    )


def _calls_by_rows(source: str) -> bool:
    return any(f".{name}(" in source or source.startswith(f"{name}(") for name in _BY_ROWS)
