"""Which line of the user's code each operator comes from.

In a located step every operator lies inside the marks of the lines that led to it, so its innermost mark is the
calling line. A measured step carries no marks: there the n-th operator of a kind (same thread, name, shapes and
enclosing operator) is matched with the n-th of that kind in the located step. A backward operator also has the line of
the forward operator that shares its sequence number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profkit.derive.steps import Steps
from profkit.derive.tree import Tree
from profkit.run import STEP_MARK
from profkit.trace.events import NONE, Bools, Category, Int64s, Rows, Trace

_BACKWARD = re.compile(r"autograd::engine::evaluate_function|torch::autograd::|\w*Backward\d*$")
"""Names of what the autograd engine runs; until 2021 it recorded the nodes alone."""
_CARRIED = (Category.OPERATOR, Category.ANNOTATION, Category.MEMORY, Category.RUNTIME, Category.HOST_MARK)
"""What a line of the program causes, and is matched between the located step and the others."""


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


def find_lines(trace: Trace, tree: Tree, steps: Steps) -> Lines:
    events = trace.events
    marks = events.category == Category.LINE_MARK
    mark = tree.nearest_ancestor(marks, include_self=True)
    site = np.where(mark >= 0, events.site[mark], NONE).astype(np.int64)
    backward = tree.under(_backward_nodes(trace))
    if steps.located.any() and not steps.located.all():
        site = _carry_over(trace, tree, steps, site)
    forward = _forward_operators(trace, tree, steps, backward)
    forward_site = np.where((forward >= 0) & (site[forward] >= 0), site[forward], site)
    return Lines(site, forward_site, backward, forward)


def _backward_nodes(trace: Trace) -> Bools:
    """The operators in which the autograd engine runs one node of the graph."""
    events = trace.events
    codes = trace.codes_where(lambda name: _BACKWARD.match(name) is not None)
    nodes: Bools = np.isin(events.name_code, codes) & (events.category == Category.OPERATOR)
    return nodes


def _carry_over(trace: Trace, tree: Tree, steps: Steps, site: Int64s) -> Int64s:
    """Sites of the unlocated steps' operators, matched with the first located step by kind and rank."""
    events = trace.events
    step = steps.index_of(events.start_ns)
    wanted = np.isin(events.category, _CARRIED) & (step >= 0)
    steps_by_name = np.isin(events.name_code, trace.codes_where(lambda name: name.startswith(STEP_MARK)))
    around = tree.nearest_ancestor(np.isin(events.category, (Category.OPERATOR, Category.ANNOTATION)) & ~steps_by_name)
    name = events.name_code.astype(np.int64)
    parent_name = np.where(around >= 0, name[around], NONE)
    source_step = int(np.flatnonzero(steps.located)[0])
    source = np.flatnonzero(wanted & (step == source_step) & (site >= 0))
    target = np.flatnonzero(wanted & (site < 0) & ~steps.located[step.clip(min=0)])
    carried = site.copy()
    shapes, lane = events.dims_code, events.lane
    for parts in ((lane, name, parent_name, shapes), (lane, name, parent_name), (lane, name, shapes), (lane, name)):
        if not (target.size and source.size):
            break
        carried[target] = _match(_combine(parts), step, source, target, site)
        target = target[carried[target] < 0]
    return carried


def _combine(columns: tuple[np.ndarray[tuple[int], np.dtype[np.signedinteger]], ...]) -> Int64s:
    """One code per distinct combination of the columns' values."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = column.astype(np.int64) + 1
        _, code = np.unique(code * (int(values.max(initial=0)) + 1) + values, return_inverse=True)
    return code


def _match(kind: Int64s, step: Int64s, source: Rows, target: Rows, site: Int64s) -> Int64s:
    """For each target the site of the source of its kind with its rank, scaled where their numbers differ."""
    source = source[np.argsort(kind[source], kind="stable")]
    kinds, first, count = np.unique(kind[source], return_index=True, return_counts=True)
    at = np.searchsorted(kinds, kind[target]).clip(max=len(kinds) - 1)
    found = kinds[at] == kind[target]
    rank, total = _rank_within(_combine((step[target], kind[target])))
    scaled = np.where(total == count[at], rank, rank * count[at] // np.maximum(total, 1))
    return np.where(found, site[source[first[at] + scaled.clip(max=count[at] - 1)]], NONE)


def _rank_within(group: Int64s) -> tuple[Int64s, Int64s]:
    """For each element its rank among those of its group, in order, and the size of the group."""
    order = np.argsort(group, kind="stable")
    _, inverse, count = np.unique(group, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - starts[inverse[order]]
    return rank, count[inverse]


def _forward_operators(trace: Trace, tree: Tree, steps: Steps, backward: Bools) -> Rows:
    """For backward operators the row of the forward operator with the same sequence number in the same step."""
    events = trace.events
    origin = np.full(len(events), NONE, dtype=np.int64)
    step = steps.index_of(events.start_ns)
    nodes = np.flatnonzero(_backward_nodes(trace) & (events.sequence >= 0))
    forward = np.flatnonzero(~backward & (events.sequence >= 0) & (events.category == Category.OPERATOR))
    if not nodes.size or not forward.size:
        return origin
    key_of = _combine((step, np.unique(events.sequence, return_inverse=True)[1]))
    order = np.argsort(key_of[forward], kind="stable")
    keys = key_of[forward][order]
    at = np.searchsorted(keys, key_of[nodes], side="right") - 1
    match = (at >= 0) & (keys[at.clip(min=0)] == key_of[nodes])
    origin[nodes[match]] = forward[order[at[match]]]
    carrier = tree.nearest_ancestor(origin >= 0, include_self=True)
    return np.where(carrier >= 0, origin[carrier], NONE)
