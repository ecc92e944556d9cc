"""What runs in the backward pass."""

from __future__ import annotations

import re

from profkit.trace.events import Bools, Category, Trace

_BACKWARD = re.compile(r"autograd::engine::evaluate_function|torch::autograd::|\w*Backward\d*$")
"""Names of what the autograd engine runs. Until 2021 it recorded only the nodes."""


def backward_nodes(trace: Trace) -> Bools:
    """The operators in which the autograd engine runs one node of the graph."""
    named = trace.where_name(lambda name: _BACKWARD.match(name) is not None)
    nodes: Bools = named & (trace.events.category == Category.OPERATOR)
    return nodes
