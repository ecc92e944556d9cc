"""How large a backward pass will be, told from its graph before it begins.

It cannot be broken off, and through a thousand steps of a cell it leaves more events than may be recorded in all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

EVENTS_PER_NODE = 4
"""At least: the node, its function, and the operators and memory that this takes. In an LSTM it is nine."""


def is_larger(roots: Any, events: int) -> bool:
    """Whether the backward pass from ``roots``, one tensor or several, leaves more events than that."""
    most = events // EVENTS_PER_NODE
    waiting = [node for node in map(_node_of, _each(roots)) if node is not None]
    seen = set(waiting)
    while waiting and len(seen) <= most:
        for following, _ in waiting.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return len(seen) > most


def _each(roots: Any) -> Iterable[Any]:
    return roots if type(roots) in (list, tuple) else (roots,)  # an edge of the graph is a named tuple


def _node_of(root: Any) -> Any:
    """The node of a tensor, without running a subclass's code, or of an edge."""
    if isinstance(root, GradientEdge):
        return root.node
    with torch._C.DisableTorchFunctionSubclass():
        return root.grad_fn if isinstance(root, torch.Tensor) else None
