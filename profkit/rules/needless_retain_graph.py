"""A backward pass keeps its graph for another one that never comes.

What it detects
`backward(retain_graph=True)`, or the same in `torch.autograd.grad`, in a program whose recorded backward passes each
walk their graph once: the sequence numbers of its nodes come up in one pass and in no later one, of that step or of the
next. Two losses that share a trunk, a second pass over the same loss, and a state that is carried on from step to step
walk nodes again: they need the flag. Nothing is reported if a name keeps more and more graphs, which a later pass may
need, or if keeping them does not raise the peak.

Why is this bad?
A backward pass frees what the forward pass saved for it, node by node. With the flag all of that stays until the loss
is gone. A loop that binds the loss anew in each step drops the old one only after the next forward pass, so the
activations of two steps are held at once.

Example
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward(retain_graph=True)
        optimizer.step()

Use instead
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

How the saving is estimated
Memory, not time: by how much the peak of the measured steps falls if whatever the forward operators allocated, and is
still held after their backward nodes, is freed when these end. The part that the program's names hold at the end of a
step, such as the model's output, would stay and is subtracted.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.steps.backward import backward_nodes
from profkit.patterns import Places, call_site, locations_of
from profkit.patterns.loops.located import located_marks
from profkit.patterns.retention.growing_graphs import growing_graphs
from profkit.patterns.retention.lifetimes import lifetimes, live_bytes
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, rule
from profkit.source.syntax import switched_on
from profkit.trace import NONE, Int64s, Rows, distinct

_FLAG, _HIGHER_ORDER = "retain_graph", "create_graph"
_LEAST_STEPS = 2
"""A pass over the graph of the step before shows in the second."""


@rule(Kind.FAULT, Need.MEMORY, Need.LINES)
def needless_retain_graph(facts: Facts) -> Suspicions:
    """One finding for all lines that ask for it, as the passes of one step free their graphs together."""
    located = distinct(facts.trace.events.site[located_marks(facts)]).tolist()
    sites = [site for site in located if (place := call_site(facts, site)) and asks_to_retain(place.source)]
    nodes = facts.measured_rows(facts.tree.outermost(backward_nodes(facts.trace)))
    if not sites or facts.steps.measured_count < _LEAST_STEPS or _walk_again(facts, nodes) or growing_graphs(facts):
        return
    peak, lower = _peaks(facts, nodes)
    # What the program's names hold with a graph at the end of the last sampled step stays.
    holders = [holder for sample in facts.live[-1:] for holder in sample.holders if holder.graph_tensors]
    size = peak - lower - sum(holder.bytes for holder in holders)
    if size <= 0:
        return
    yield Suspicion(
        message=f"`retain_graph=True` adds {format_bytes(size)} to the peak: what the forward pass saved stays until "
        "the loss is gone. No recorded backward pass walks a graph twice.",
        fix="Leave out `retain_graph=True`.",
        places=Places.of(locations_of(facts, sites)),
        size_bytes=size,
        peak_fraction=size / max(peak, facts.memory.peak_bytes, 1),
        count=len(sites),
        evidence={"peak_bytes": peak, "peak_bytes_without": lower},
    )


def asks_to_retain(line: str) -> bool:
    """Whether a line says ``retain_graph=True`` and does not ask to differentiate the pass itself."""
    asked = switched_on(line) if _FLAG in line else ()
    return any(_FLAG in names and _HIGHER_ORDER not in names for names in asked)


def _walk_again(facts: Facts, nodes: Rows) -> bool:
    """Whether a node of the graph runs twice, or no node has a number that would show it."""
    numbers = facts.trace.events.sequence[nodes]
    known = numbers[numbers >= 0]
    return not known.size or len(distinct(known)) < len(known)


def _peaks(facts: Facts, nodes: Rows) -> tuple[int, int]:
    """The most that the measured steps' own allocations take at once: as recorded, and with each graph freed as its
    backward pass goes through it."""
    memory, (made_ns, freed_ns) = facts.memory, lifetimes(facts)
    own = facts.measured[memory.rows]
    made_ns, freed_ns, size = made_ns[own], freed_ns[own], memory.size_bytes[own]
    done_ns = _passed_ns(facts, nodes, memory.rows[own])
    without_ns = np.where(done_ns > made_ns, np.minimum(freed_ns, done_ns), freed_ns)
    peaks = (int(live_bytes(made_ns, until_ns, size)[1].max(initial=0)) for until_ns in (freed_ns, without_ns))
    return next(peaks), next(peaks)


def _passed_ns(facts: Facts, nodes: Rows, rows: Rows) -> Int64s:
    """For each event inside a forward operator, when the backward node of that operator has ended; 0 for others."""
    forward = facts.lines.forward[nodes]
    known = forward >= 0
    ended_ns = np.zeros(len(facts.trace.events), dtype=np.int64)
    np.maximum.at(ended_ns, forward[known], facts.tree.end_ns[nodes[known]])
    around = facts.tree.nearest_ancestor(ended_ns > 0, of=rows)
    return np.where(around != NONE, ended_ns[around], 0)
