"""The autograd engine: whether it is running, and how large its next backward pass will be."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

_NO_BACKWARD_PASS = -1
EVENTS_PER_NODE = 4
"""The fewest events per node: the node, its function, its operators and their memory. An LSTM has nine."""


def in_backward_pass() -> bool:
    """Whether a backward pass is calling this code, from a hook or while it recomputes activations.

    A recording may neither begin nor end there. The engine restores the thread's state after each node, including the
    profiler's: a profiler stopped inside comes back half alive, and PyTorch refuses to start the next one.
    """
    return torch._C._current_graph_task_id() != _NO_BACKWARD_PASS


def is_larger(roots: Any, events: int) -> bool:
    """Whether the backward pass from ``roots``, one tensor or several, will record more than that many events.

    A pass cannot be interrupted, and one through a thousand steps of a recurrent cell exceeds any recording's limit.
    """
    most = events // EVENTS_PER_NODE
    each = roots if type(roots) in (list, tuple) else (roots,)  # an edge of the graph is a named tuple
    waiting = [node for node in map(node_of, each) if node is not None]
    seen = set(waiting)
    while waiting and len(seen) <= most:
        for following, _ in waiting.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return len(seen) > most


def node_of(root: Any) -> Any:
    """The node of an edge, or of a tensor without running a subclass's code; None if it has none or cannot tell.

    If several views share a base, reading a view's node after a write to the base makes a new one, which fails outside
    of `no_grad` (``check_inplace`` of ``torch/csrc/autograd``). FSDP's parameters are such views.
    """
    if isinstance(root, GradientEdge):
        return root.node
    with torch._C.DisableTorchFunctionSubclass(), suppress(RuntimeError):
        return root.grad_fn if isinstance(root, torch.Tensor) else None
    return None
