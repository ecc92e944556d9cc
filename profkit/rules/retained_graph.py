"""A name of the program keeps more and more of the autograd graph alive, step after step.

What it detects
A variable, an attribute or an entry of a container from which more backward nodes can be reached at the end of each
recorded step than at the end of the one before, by a steady amount, over four samples or more. Usually it is a list of
losses, a running sum of losses, or a hidden state that is carried over without `detach`. Graphs that stay as large as
they are, whatever their size, and numbers that go up and down are no fault. Where the source shows that the name is
emptied again and again, as at each epoch's end, memory grows until then: that is low, unless activations are kept, too,
which may fill memory within an epoch. Names that keep the same graphs are one
finding, as either alone keeps them alive; several graphs share the growth of memory in proportion to their nodes.

In a memory snapshot, which knows no names: lines that by turns allocate four times or more what is never freed, to the
end of the history, if calls of the model keep more than half of it for a backward pass. The program's own lines may
free it all after the last work of the model, as where a function returns. If a backward pass freed as much before, and
none ran meanwhile, it may still come: that is no fault.

Why is this bad?
A tensor with a graph holds the nodes that made it, and through them whatever they saved. Memory grows a little each
step until the run dies, hours later and far from the line; with a chain the backward pass grows as well.

Example
    losses = []
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss)

Use instead
    losses = []
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

How the saving is estimated
Memory, not time: by how much the live bytes grow from the end of one measured step to the end of the next, by the
allocator's events; without those, the growth of the tensors that the name holds. After a backward pass only the nodes
are left, which no allocator counts: each counts as 500 bytes, the least it takes. In a snapshot: the median of what the
rounds leave behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profkit.patterns.allocator.rounds import kept_rounds
from profkit.patterns.named_lines import growing_lines, kept_lines
from profkit.patterns.retention.growing_graphs import (
    GrowingGraph,
    adds_to_itself,
    carried_graph,
    graph_node_bytes,
    graphs_held_together,
    growing_graphs,
    growth_bytes,
    keeps_activations,
    tensor_growth_bytes,
    uses_itself,
)
from profkit.patterns.retention.holding import first_at_each_line
from profkit.rules.base import Facts, Kind, Need, Severity, Suspicion, Suspicions, format_bytes, format_count, rule

_UNTRAINED = (
    "Run it under `with torch.inference_mode():`: nothing is trained in the recorded steps, so nobody needs the graph. "
    "If a backward pass follows later, cut the history before each step with `detach()`."
)


_MANY_STEPS = 1_000
"""An epoch's, to give an idea of what is kept until its end."""
_BY_SNAPSHOT_CONFIDENCE = 0.7
"""A program may call its model many times before the one backward pass."""


def _by_snapshot(facts: Facts) -> Suspicions:
    rounds = kept_rounds(facts)
    if rounds is None or not rounds.keeps_passes:
        return
    while_it_ran = "although a backward pass ran meanwhile" if rounds.had_backward else "and no backward pass frees it"
    until = "until the program lets go of all at once" if rounds.is_over else "by now"
    yield Suspicion(
        message=f"{format_bytes(rounds.each_bytes)} a round stays allocated, {format_bytes(rounds.total_bytes)} "
        f"{until}: {rounds.rounds} rounds keep what the model's calls saved for a backward pass, {while_it_ran}. "
        "A snapshot does not show which name holds the graphs; this line allocates last in a round.",
        fix="Keep the values without their history: look from this line on for what is appended, added up or "
        "carried over. Put `x.detach()` there, or `x.item()` for a number. If nothing is trained, run it under "
        "`with torch.inference_mode():`. If one backward pass for all rounds is still to come, call it after "
        "each instead.",
        places=kept_lines(facts, rounds),
        size_bytes=rounds.each_bytes,
        grows=True,
        confidence=_BY_SNAPSHOT_CONFIDENCE,
        count=rounds.rounds,
        evidence={
            "rounds": rounds.rounds,
            "bytes_per_round": rounds.each_bytes,
            "bytes": rounds.total_bytes,
            "bytes_of_the_model": rounds.forward_bytes,
        },
    )


@rule(Kind.FAULT, Need.LIVE, Need.GROWTH, by_snapshot=_by_snapshot)
def retained_graph(facts: Facts) -> Suspicions:
    """One finding for each line that makes a graph grow, but one for all that keep the same graph."""
    groups = graphs_held_together(facts, first_at_each_line(_root_causes(growing_graphs(facts))))
    more_nodes = sum(group[0].more_nodes for group in groups)
    for group in groups:
        yield _suspect(facts, group, group[0].more_nodes / more_nodes)


def _root_causes(graphs: tuple[GrowingGraph, ...]) -> Iterator[GrowingGraph]:
    """Leave out graphs that only grow because they are computed from another one that grows.

    Containers and running sums keep graphs by themselves. Any other tensor whose graph grows carries it on from step to
    step. The origin is the tensor that its own line uses, else the one with the smallest graph: the others' graphs
    contain it.
    """
    keeps = [graph for graph in graphs if graph.more_tensors > 0 or adds_to_itself(graph)]
    others = (graph for graph in graphs if graph not in keeps)
    carries = min(others, key=lambda graph: (not uses_itself(graph), graph.nodes), default=None)
    yield from keeps
    if carries is not None and all(carries.nodes < graph.nodes for graph in keeps):
        yield carries


def _suspect(facts: Facts, names: Sequence[GrowingGraph], share: float) -> Suspicion:
    """``share`` is the part of memory's growth that these names cause."""
    graph = names[0]
    more_bytes, node_bytes = growth_bytes(facts, graph, share), graph_node_bytes(graph)
    tensor_bytes = tensor_growth_bytes(facts, graph, share)
    by_nodes = f"autograd nodes by {format_bytes(node_bytes)}"
    size = (
        f"each step: tensors by {format_bytes(tensor_bytes)}, {by_nodes}"
        if tensor_bytes > 0
        else f"by {format_bytes(node_bytes)} a step in autograd nodes"
    )
    what = (
        f"{format_count(graph.more_tensors, 'tensor')} more with an autograd graph"
        if graph.more_tensors
        else "a longer autograd graph"
    )
    others = " and ".join(f"`{other.path}`" for other in names[1:])
    same = f" The same graphs hang on {others}: nothing is freed until all of them let go." if others else ""
    by_then = format_bytes(_MANY_STEPS * (max(tensor_bytes, 0) + node_bytes))
    until = f" It begins anew now and then: after {_MANY_STEPS:,} steps that would be {by_then}." * graph.begins_anew
    return Suspicion(
        message=f"Memory grows {size}. `{graph.path}` keeps {what} each step "
        f"({format_count(graph.more_nodes, 'backward node')} a step, {graph.nodes:,} by now).{until}{same}",
        fix="\n".join(map(_advise, names)) if carried_graph(facts) is None else _UNTRAINED,
        places=growing_lines(facts, graph.path, *(name.site for name in names)),
        size_bytes=more_bytes,
        grows=True,
        host_bytes=node_bytes if more_bytes == node_bytes else 0,
        is_bounded=graph.begins_anew,
        severity=_severity(graph, tensor_bytes),
        # If nothing is trained the graph is needless: `unused_autograd_graph` names the cause and ranks first.
        confidence=0.95 if carried_graph(facts) is None else 0.85,
        count=max(1, graph.more_tensors),
        evidence={"nodes_per_step": graph.more_nodes, "nodes": graph.nodes, "tensors_per_step": graph.more_tensors},
    )


def _severity(graph: GrowingGraph, tensor_bytes: int) -> Severity | None:
    """High with activations, which may fill memory within an epoch; else low if the name begins anew, or by the time
    until memory is full."""
    if keeps_activations(graph, tensor_bytes):
        return Severity.HIGH
    return Severity.LOW if graph.begins_anew else None


def _advise(graph: GrowingGraph) -> str:
    name = graph.path
    if graph.more_tensors:
        return f"Keep the values without their history: put `x.detach()`, or `x.item()` for a number, into `{name}`."
    if adds_to_itself(graph):
        return f"Add the value without its history: `{name} += x.detach()`."
    cut = f"{name}.detach()" if graph.tensors == 1 else f"tuple(t.detach() for t in {name})"
    return (
        f"Cut the history between steps: `{name} = {cut}` before the next step uses it. For backpropagation through "
        "several steps on purpose, detach once in a while."
    )
