"""The part of an optimizer's step that is its own work: the update of the parameters.

``optimizer.step(closure)`` runs the program's forward and backward pass inside the step, as L-BFGS needs and as
Lightning does with every optimizer. Whatever begins before the step's last backward node has ended is the closure's.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.intervals import Intervals, union
from profkit.derive.timeline.tree import Tree
from profkit.trace.events import Bools, Int64s, Rows, Trace


class Updates(Struct, frozen=True):
    """``inside`` marks the events of all updates. ``rows`` are the optimizers' steps; in each, the update lies from
    ``start_ns`` to ``end_ns``."""

    inside: Bools
    rows: Rows
    start_ns: Int64s
    end_ns: Int64s

    def on(self, wanted: Bools) -> Intervals:
        """The time of the updates whose steps are among ``wanted`` events."""
        chosen = wanted[self.rows]
        return union(self.start_ns[chosen], self.end_ns[chosen])


def find_updates(trace: Trace, tree: Tree, optimizing: Bools, backward: Bools) -> Updates:
    """``optimizing`` are the events around the optimizers' steps."""
    starts = trace.events.start_ns
    inside = tree.under(optimizing)
    rows = np.flatnonzero(tree.outermost(optimizing))
    # An optimizer that steps in the backward pass, parameter by parameter, is not a closure's.
    nodes = np.flatnonzero(backward & ~tree.under(optimizing & backward))
    nodes = nodes[np.argsort(starts[nodes], kind="stable")]
    begin_ns, end_ns = starts[rows], tree.end_ns[rows]
    if nodes.size:
        last = np.searchsorted(starts[nodes], end_ns) - 1
        runs_closure = (last >= 0) & (starts[nodes[last]] >= begin_ns)
        closure_end_ns = np.maximum.accumulate(tree.end_ns[nodes])[last]
        begin_ns = np.where(runs_closure, np.minimum(closure_end_ns, end_ns), begin_ns)
    late = np.flatnonzero(begin_ns > starts[rows])
    for row, stop, update_ns in zip(rows[late].tolist(), tree.stop[rows[late]].tolist(), begin_ns[late], strict=True):
        inside[row : row + int(np.searchsorted(starts[row:stop], update_ns))] = False
    return Updates(inside, rows, begin_ns, end_ns)
