"""The line of the user's code that each operator comes from.

In a located step every operator lies inside the marks of the lines that led to it. Its innermost mark is the calling
line. Measured steps have no marks: an operator there takes the line of the operator that it repeats
(`profkit.derive.steps.matching`). If the marks end before the located step does, an operator that continues a loop
takes the line of an earlier turn (`profkit.derive.steps.continuing`). A backward operator also has the line of the
forward operator with its sequence number.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.steps.backward import backward_nodes
from profkit.derive.steps.boundaries import Steps
from profkit.derive.steps.continuing import match_earlier_turns
from profkit.derive.steps.matching import Repeats
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Int32s, Int64s, Rows, Trace
from profkit.trace.statistics import constant


class Lines(Struct, frozen=True):
    """Columns over all events, `NONE` where nothing is known.

    ``site`` is the call site of the line that ran the event. ``forward_site`` is the same, but for a backward operator
    that of its forward operator. ``backward`` marks what runs in the backward pass, and ``forward`` is the row of the
    forward operator that it belongs to. ``marked`` is the row of the event whose marks name the line: the event itself,
    or one that it repeats."""

    site: Int32s
    forward_site: Int32s
    backward: Bools
    forward: Int32s
    marked: Int32s

    @property
    def known(self) -> bool:
        return bool((self.site >= 0).any())


def find_lines(trace: Trace, tree: Tree, steps: Steps, repeats: Repeats) -> Lines:
    events = trace.events
    marks = events.category == Category.LINE_MARK
    backward = tree.under(backward_nodes(trace))
    forward = _forward_operators(trace, tree, steps, backward)
    if not marks.any():
        nowhere = constant(NONE, np.int32, len(events))
        return Lines(nowhere, nowhere, backward, forward, np.arange(len(events), dtype=np.int32))
    mark = tree.nearest_ancestor(marks, include_self=True)
    marked = _marked(trace, tree, steps, repeats, mark)
    site = np.where(mark[marked] >= 0, events.site[mark[marked]], np.int32(NONE))
    forward_site = np.where((forward >= 0) & (site[forward] >= 0), site[forward], site)
    return Lines(site, forward_site, backward, forward, marked)


def _marked(trace: Trace, tree: Tree, steps: Steps, repeats: Repeats, mark: Rows) -> Int32s:
    """For each event the event itself, the one that it repeats in the located step, or the same in an earlier turn."""
    own = np.arange(len(trace.events), dtype=np.int32)
    marked = np.where((mark < 0) & (repeats.row >= 0), repeats.row.astype(np.int32), own)
    earlier = match_earlier_turns(trace, tree, steps, mark)
    if (earlier < 0).all():
        return marked
    inside = tree.nearest_ancestor(earlier >= 0, include_self=True)
    return np.where(inside >= 0, earlier[inside], own)[marked]


def _forward_operators(trace: Trace, tree: Tree, steps: Steps, backward: Bools) -> Int32s:
    """For backward operators, the row of the forward operator with the same sequence number in the same step or the one
    before. If calls of the model end the steps, as with L-BFGS, a step begins with the backward pass of the call before
    it. Gradients of gradients belong to the operator of the backward pass that they differentiate, if that ran on the
    main thread, whose numbers the forward pass has too."""
    events = trace.events
    is_node = backward_nodes(trace)
    nodes = np.flatnonzero(is_node & (events.sequence >= 0))
    numbered = (events.sequence >= 0) & (events.category == Category.OPERATOR) & ~is_node
    if not nodes.size or not numbered.any():
        return constant(NONE, np.int32, len(events))
    origin = np.full(len(events), NONE, dtype=np.int32)
    here = events.lane == steps.main_lane
    for forward in (np.flatnonzero(numbered & ~backward), np.flatnonzero(numbered & backward & here)):
        forward_keys = _keys(trace, steps, forward)
        order = np.argsort(forward_keys, kind="stable")
        keys = forward_keys[order]
        for steps_back in (0, 1) if keys.size else ():
            node_keys = _keys(trace, steps, nodes, steps_back)
            at = np.searchsorted(keys, node_keys, side="right") - 1
            match = (at >= 0) & (keys[at.clip(min=0)] == node_keys)
            match &= events.start_ns[forward[order[at.clip(min=0)]]] < events.start_ns[nodes]
            origin[nodes[match]] = forward[order[at[match]]]
            nodes = nodes[~match]
    carrier = tree.nearest_ancestor(origin >= 0, include_self=True)
    return np.where(carrier >= 0, origin[carrier], np.int32(NONE))


def _keys(trace: Trace, steps: Steps, rows: Rows, steps_back: int = 0) -> Int64s:
    """A number for the step of each row (or an earlier one) and its sequence number."""
    events = trace.events
    step, sequence = steps.index_of(events.start_ns[rows]) - steps_back, events.sequence
    span = int(sequence.max()) + 1
    if (len(steps) + 2) * span >= 2**63:
        known, sequence = np.unique(sequence, return_inverse=True)
        span = len(known)
    return (step + 2) * np.int64(span) + sequence[rows]
