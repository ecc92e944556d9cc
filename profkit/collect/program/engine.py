"""Whether the autograd engine is at work: a recording may neither begin nor end inside a backward pass.

After each node the engine restores the thread's state, which includes that of the profiler: a recording that was
stopped inside comes back half alive, and PyTorch refuses to start the next one.
"""

from __future__ import annotations

import torch

_NO_BACKWARD_PASS = -1


def in_backward_pass() -> bool:
    """Whether a backward pass called this, as from a hook or while it computes activations again."""
    return torch._C._current_graph_task_id() != _NO_BACKWARD_PASS
