"""The recorded program's release of PyTorch, so that no fix names what that release lacks.

`run.json` says it. A trace alone shows at most that the release is no older than some other. Fixes name what that one
has plainly, and anything newer together with the release that brought it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from profkit.derive.facts import Facts

Release = tuple[int, int]
_RELEASE = re.compile(r"(\d+)\.(\d+)")

INDUCTOR: Release = (2, 0)
"""``torch.compile``, ``scaled_dot_product_attention``, ``torch.func`` and ``torch.vmap``, and gradients that
``zero_grad()`` sets to None (release notes of 2.0)."""
FOREACH: Release = (1, 12)
"""The argument ``foreach`` of optimizers; the default on GPUs from 2.0 on."""

FUSED_STATES: Mapping[str, int] = {"Adam": 2, "AdamW": 2, "SGD": 1, "Adagrad": 1}
"""Optimizers that take ``fused=True`` (torch.optim's documentation), and how many state tensors each keeps."""
FUSED_SINCE: Mapping[str, Release] = {"Adam": (1, 13), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 13)}
"""On GPUs (release notes; Adagrad's came with pytorch/pytorch#177672)."""


def has_release(facts: Facts, since: Release) -> bool | None:
    """Whether the program's PyTorch has that release or a later one; None if the recording does not tell."""
    exact = _RELEASE.match(facts.run.torch or "")
    if exact is not None:
        return (int(exact[1]), int(exact[2])) >= since
    least = facts.trace.recording.least_release
    return True if least is not None and tuple(least) >= since else None


def note_since(facts: Facts, since: Release, before: str = "") -> str:
    """What to add to a name: ``' (from torch 2.4 on)'``, or nothing if the program's PyTorch has it.

    ``before`` is what older releases have instead.
    """
    if has_release(facts, since):
        return ""
    known = _RELEASE.match(facts.run.torch or "")
    recorded = f", this was recorded with {known[0]}" if known else ""
    return f" (from torch {since[0]}.{since[1]} on{f', before that {before}' if before else ''}{recorded})"
