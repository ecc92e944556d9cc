"""Whether the autograd engine is at work, inside which a recording may neither begin nor end.

After each node the engine puts back the thread's state of before. The state of a profiler is part of it: a recording
that was stopped inside comes back half alive, and PyTorch refuses to start the next one.
"""

from __future__ import annotations

import torch

_NO_BACKWARD_PASS = -1


def in_backward_pass() -> bool:
    """Whether a backward pass called this: a hook, an optimizer's step in one, activations that are computed again."""
    return torch._C._current_graph_task_id() != _NO_BACKWARD_PASS
