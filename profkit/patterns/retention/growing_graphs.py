"""Names that reach more of the autograd graph at the end of each step, and whether that may be intended."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from math import ceil
from typing import TypeGuard

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.retention.holding import (
    growth_per_step,
    held_by_name,
    held_together,
    is_steady,
    since_growing,
)
from profkit.run.directory import CallSite
from profkit.source.syntax import parse_piece, parts_of
from profkit.trace.statistics import median

LEAST_PASS = 10
"""Backward nodes. Fewer are a metric or an output that the loss happens not to use, not a pass of a model."""
_NODE_BYTES = 500
"""The least host memory of a backward node besides what it saves: the members of ``Node`` in
``torch/csrc/autograd/function.h``, mostly the hooks, the mutex and the metadata of one input."""


_LEAST_BLOCK_BYTES = 512
"""The GPU allocator's smallest block (``kMinBlockSize`` in ``c10/cuda/CUDACachingAllocator.cpp``): a loss of four bytes
takes one."""


class GrowingGraph(Struct, frozen=True):
    """A name that reaches more of the autograd graph at each step's end; ``more_*`` are medians per step.

    ``tensors`` and ``nodes`` are what it reached at the end of the last step. If it ``begins_anew``, the program
    empties it again and again, as at the end of each epoch.
    """

    path: str
    site: CallSite | None
    tensors: int
    nodes: int
    more_nodes: int
    more_tensors: int
    more_bytes: int
    begins_anew: bool = False


@derived_once
def growing_graphs(facts: Facts) -> tuple[GrowingGraph, ...]:
    """The names whose backward nodes, or tensors with a graph, grow steadily over all sampled steps.

    Steadily means that every step adds something, and none more than three times what another adds. The lengths of a
    few sequences that happen to rise do not count.
    """
    found = []
    for path, samples in held_by_name(facts):
        last, held = samples[-1], since_growing(samples, "graph_nodes")
        nodes, tensors, size = (
            growth_per_step(facts, held, name) for name in ("graph_nodes", "graph_tensors", "bytes")
        )
        if last is not None and len(nodes) >= 3 and nodes.min() > 0 and (is_steady(nodes) or is_steady(tensors)):
            more = [ceil(median(column)) for column in (nodes, tensors, size)]
            more_nodes, more_tensors, more_bytes = more
            found.append(
                GrowingGraph(
                    path=path,
                    site=last.site,
                    tensors=last.graph_tensors,
                    nodes=last.graph_nodes,
                    more_nodes=more_nodes,
                    more_tensors=more_tensors,
                    more_bytes=more_bytes,
                    begins_anew=last.begins_anew,
                )
            )
    return tuple(found)


def graphs_held_together(facts: Facts, graphs: Iterable[GrowingGraph]) -> list[list[GrowingGraph]]:
    """The graphs, grouped by those that grow by the same nodes; the largest of each group comes first."""
    by_size = sorted(graphs, key=lambda graph: -graph.nodes)
    return held_together(facts, by_size, "graph_nodes", lambda graph: graph.more_nodes)


def carried_graph(facts: Facts) -> GrowingGraph | None:
    """The graph that a rebound name carries from step to step although nothing is trained: a sampler that starts each
    step from its own last result. A container or a running sum may be meant for a later backward pass."""
    graphs = growing_graphs(facts)
    trains = facts.lines.backward.any() or facts.optimizing.any() or facts.run.step_signal == "optimizer"
    if trains or facts.run.was_outdone or any(graph.more_tensors or adds_to_itself(graph) for graph in graphs):
        return None
    passes = (graph for graph in graphs if graph.more_nodes >= LEAST_PASS)
    return min(passes, key=lambda graph: graph.nodes, default=None)


def adds_to_itself(graph: GrowingGraph) -> bool:
    """Whether the line is ``x += …``, ``x = x + …`` or ``x = … + x``."""
    line = _line_of(graph)
    if isinstance(line, ast.AugAssign):
        return isinstance(line.op, ast.Add) and _is_named(line.target, graph)
    return _binds(line, graph) and any(_is_named(term, graph) for term in _terms(line.value))


def uses_itself(graph: GrowingGraph) -> bool:
    """Whether the line that binds the name reads it too: ``out, state = rnn(x, state)``."""
    line = _line_of(graph)
    return _binds(line, graph) and any(_is_named(part, graph) for part in ast.walk(line.value))


def _line_of(graph: GrowingGraph) -> ast.stmt | None:
    return parse_piece(graph.site.source) if graph.site else None


def _binds(line: ast.stmt | None, graph: GrowingGraph) -> TypeGuard[ast.Assign]:
    parts = (part for target in getattr(line, "targets", ()) for part in ast.walk(target))
    return isinstance(line, ast.Assign) and any(_is_named(part, graph) for part in parts)


def _is_named(node: ast.AST, graph: GrowingGraph) -> bool:
    """By the last attribute: what one function calls ``model.total``, a method calls ``self.total``."""
    return "".join(parts_of(node)).rpartition(".")[2] == graph.path.rpartition(".")[2]


def _terms(value: ast.expr) -> Iterator[ast.expr]:
    """``a``, ``b`` and ``c`` of ``a + b + c``."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        yield from (*_terms(value.left), *_terms(value.right))
    else:
        yield value


def growth_bytes(facts: Facts, graph: GrowingGraph, share: float = 1.0) -> int:
    """How much memory grows per step: that of the tensors, but no less than the nodes take, which the allocator does
    not see."""
    return max(tensor_growth_bytes(facts, graph, share), graph_node_bytes(graph))


def graph_node_bytes(graph: GrowingGraph) -> int:
    """The least that the nodes which a step adds take on the host."""
    return graph.more_nodes * _NODE_BYTES


def keeps_activations(graph: GrowingGraph, tensor_bytes: int) -> bool:
    """Whether the graphs keep more tensors alive than the name itself: what the forward pass saved for the backward
    pass, which frees it if it runs."""
    return tensor_bytes > 2 * max(graph.more_bytes, graph.more_tensors * _LEAST_BLOCK_BYTES)


def tensor_growth_bytes(facts: Facts, graph: GrowingGraph, share: float = 1.0) -> int:
    """How much tensors grow per step: this ``share`` of the allocator's growth, or else the name's own tensors."""
    measured = np.flatnonzero(facts.steps.measured)
    growth = graph.more_bytes
    if facts.memory.present and len(measured) > 1:
        growth = int(share * median(np.diff(facts.memory.live_at_step_end_bytes[measured])))
    return growth
