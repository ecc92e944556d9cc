"""The autograd engine: whether it is at work, and how large its next backward pass will be."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

_NO_BACKWARD_PASS = -1
EVENTS_PER_NODE = 4
"""At least: the node, its function, and the operators and memory that this takes. In an LSTM it is nine."""


def in_backward_pass() -> bool:
    """Whether a backward pass called this, as from a hook or while it computes activations again.

    A recording may neither begin nor end there: after each node the engine restores the thread's state, which includes
    that of the profiler. One that was stopped inside comes back half alive, and PyTorch refuses to start the next.
    """
    return torch._C._current_graph_task_id() != _NO_BACKWARD_PASS


def is_larger(roots: Any, events: int) -> bool:
    """Whether the backward pass from ``roots``, one tensor or several, will leave more events than that.

    It cannot be broken off, and through a thousand steps of a cell it leaves more than may be recorded in all.
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
    """The node of a tensor, without running a subclass's code, or of an edge; None where it has none, or cannot tell.

    A view among several of one base makes its node anew after the base was written to, and refuses that without
    `no_grad` (``check_inplace`` of ``torch/csrc/autograd``). FSDP's parameters are such views.
    """
    if isinstance(root, GradientEdge):
        return root.node
    with torch._C.DisableTorchFunctionSubclass(), suppress(RuntimeError):
        return root.grad_fn if isinstance(root, torch.Tensor) else None
    return None
