"""One graph is gone through again for each input by which its result is differentiated.

What it detects
Calls of `torch.autograd.grad` in each step that begin at the same result of the same graph, with no weights or with
ones. Physics-informed networks do it for the derivatives by place and time. The numbers of the backward nodes show
that the graph is the same, and the source of the line that the weights are. Not reported: other weights for each pass,
as for the rows of a Jacobian (`gradients-one-by-one`), other results, and `backward()`, which adds up gradients.

Why is this bad?
A backward pass computes the gradient of each layer's input on its way, whatever it is asked for. The second call
computes the same ones again. With `create_graph=True` it also records them again, and the pass of the loss goes through
each record.

Example
    u_x = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    u_t = torch.autograd.grad(u.sum(), t, create_graph=True)[0]

Use instead
    u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)

How the saving is estimated
The later passes go, with the time between their nodes, and so do the nodes by which the loss's backward pass goes
through what they recorded. Derivatives of derivatives stay, as each begins at a result of its own.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import Places, costliest_lines, in_most_steps
from profkit.patterns.flow.repeated_passes import RepeatedPasses, repeated_passes
from profkit.rules.base import LOW_FROM, Facts, Kind, Need, Suspicion, Suspicions, rule
from profkit.savings import Edit, combine, shrink_spans, take_less

_UNCERTAINTY = 0.2
"""Gradients that several passes gave are added up in one, and the cache holds other tensors."""
_FIX = (
    "Ask for all of them in one call: `u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), "
    "create_graph=True)`. A helper that differentiates by one input can take a tuple of them."
)


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.LINES)
def repeated_backward_pass(facts: Facts) -> Suspicions:
    """One finding for the step."""
    found = repeated_passes(facts)
    if found is None or not in_most_steps(facts, found.nodes):
        return
    again = int(found.last.sum()) // max(facts.steps.measured_count, 1)
    yield Suspicion(
        message=f"{found.passes:,} backward passes begin at the same result and go through the same graph, each for "
        "the gradient by another input. One pass gives all of them.",
        fix=_FIX,
        rows=found.nodes,
        edit=_once(facts, found),
        worth=LOW_FROM,
        confidence=0.85,
        count=max(again, 1),
        places=Places.of([*costliest_lines(facts, found.nodes).all(), *costliest_lines(facts, found.first).all()]),
        evidence={"passes": found.passes, "nodes_per_step": len(found.nodes) // max(facts.steps.measured_count, 1)},
    )


def _once(facts: Facts, found: RepeatedPasses) -> Edit:
    """Nodes and what lies between two of them go."""
    start, end = facts.tree.end_ns[found.nodes[:-1]], facts.trace.events.start_ns[found.nodes[1:]]
    inside = ~found.last[:-1]
    gone = [take_less(facts, rows, 0.0, _UNCERTAINTY, launch_kept=0.0) for rows in (found.nodes, found.later)]
    between = shrink_spans(start[inside], end[inside], np.zeros(inside.sum(), dtype=np.int64), _UNCERTAINTY)
    return combine([*gone, between])
