"""Which line of the user's code each operator comes from.

In a located step every operator lies inside the marks of the lines that led to it, so its innermost mark is the
calling line. A measured step carries no marks: an operator there has the line of the one that it repeats (see
`profkit.derive.carrying`). A backward operator also has the line of the forward operator that shares its sequence
number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profkit.derive.carrying import Repeats, combine_codes
from profkit.derive.steps import Steps
from profkit.derive.tree import Tree
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows, Trace

_BACKWARD = re.compile(r"autograd::engine::evaluate_function|torch::autograd::|\w*Backward\d*$")
"""Names of what the autograd engine runs; until 2021 it recorded the nodes alone."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Columns over all events: ``site`` is the call site of the line that ran it, ``forward_site`` for a backward
    operator that of its forward operator, else the same; `NONE` where no line is known. ``backward`` marks what runs
    in the backward pass, ``forward`` is the row of the forward operator that it belongs to, `NONE` where unknown."""

    site: Int64s
    forward_site: Int64s
    backward: Bools
    forward: Rows

    @property
    def known(self) -> bool:
        return bool((self.site >= 0).any())


def find_lines(trace: Trace, tree: Tree, steps: Steps, repeats: Repeats) -> Lines:
    events = trace.events
    marks = events.category == Category.LINE_MARK
    mark = tree.nearest_ancestor(marks, include_self=True)
    site = np.where(mark >= 0, events.site[mark], NONE).astype(np.int64)
    backward = tree.under(_backward_nodes(trace))
    site = np.where((site < 0) & (repeats.row >= 0), site[repeats.row], site)
    forward = _forward_operators(trace, tree, steps, backward)
    forward_site = np.where((forward >= 0) & (site[forward] >= 0), site[forward], site)
    return Lines(site, forward_site, backward, forward)


def _backward_nodes(trace: Trace) -> Bools:
    """The operators in which the autograd engine runs one node of the graph."""
    events = trace.events
    codes = trace.codes_where(lambda name: _BACKWARD.match(name) is not None)
    nodes: Bools = np.isin(events.name_code, codes) & (events.category == Category.OPERATOR)
    return nodes


def _forward_operators(trace: Trace, tree: Tree, steps: Steps, backward: Bools) -> Rows:
    """For backward operators the row of the forward operator with the same sequence number in the same step."""
    events = trace.events
    origin = np.full(len(events), NONE, dtype=np.int64)
    step = steps.index_of(events.start_ns)
    nodes = np.flatnonzero(_backward_nodes(trace) & (events.sequence >= 0))
    forward = np.flatnonzero(~backward & (events.sequence >= 0) & (events.category == Category.OPERATOR))
    if not nodes.size or not forward.size:
        return origin
    key_of = combine_codes((step, np.unique(events.sequence, return_inverse=True)[1]))
    order = np.argsort(key_of[forward], kind="stable")
    keys = key_of[forward][order]
    at = np.searchsorted(keys, key_of[nodes], side="right") - 1
    match = (at >= 0) & (keys[at.clip(min=0)] == key_of[nodes])
    origin[nodes[match]] = forward[order[at[match]]]
    carrier = tree.nearest_ancestor(origin >= 0, include_self=True)
    return np.where(carrier >= 0, origin[carrier], NONE)
