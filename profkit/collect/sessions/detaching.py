"""Detaching CUPTI, NVIDIA's library that tells what a GPU does, after a recording.

Kineto leaves it attached, and every later launch is slower: a step that launches much took a fifth longer on an H100.
With ``TEARDOWN_CUPTI=1`` in the environment Kineto detaches it when a session stops: a thread of its own prepares that,
and the end of the next call of CUDA's runtime does it (``CuptiActivityApi::teardownContext``). If the variable is set
again, the next session attaches it. So it is set around start and stop only, as the program's processes must not
inherit it; and the call that detaches is made here, as a session that began before it would lose its kernels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

_VARIABLE = "TEARDOWN_CUPTI"
_SINCE = (12, 6)
"""The first CUDA in which programs with CUDA graphs survive it (PyTorch 146604, 150957); any program may use them."""
_CALLS, _BETWEEN_S = 5, 0.02
"""The thread takes milliseconds to prepare, and some more afterwards; nothing says when it is done."""
STAYS_ATTACHED = (
    "the profiler stays attached after the recording and slows down later steps: "
    "profkit detaches it from CUDA 12.6 on, unless TEARDOWN_CUPTI is set"
)


@contextmanager
def detachable() -> Iterator[None]:
    """For the start and the stop of a recording with CUDA. What the program or its user has set stays."""
    if _VARIABLE in os.environ or not _can_detach():
        yield
        return
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if os.environ.get(_VARIABLE) == "1":  # PyTorch sets it to 0 for its own CUDA graphs
            del os.environ[_VARIABLE]


def detach() -> None:
    """Let Kineto detach CUPTI, after a stop and while `detachable`."""
    if os.environ.get(_VARIABLE) == "1" and torch.version.cuda:
        for _ in range(_CALLS):
            time.sleep(_BETWEEN_S)
            with suppress(RuntimeError):  # an error of the program's kernels is the program's to hear of
                torch.cuda.current_stream().query()


def stays_attached() -> bool:
    """Whether a recording of CUDA leaves CUPTI in the program."""
    return torch.version.cuda is not None and os.environ.get(_VARIABLE, "1" if _can_detach() else "0") != "1"


def _can_detach() -> bool:
    version = (torch.version.cuda or "").split(".")[:2]
    return len(version) == len(_SINCE) and tuple(int(part) for part in version) >= _SINCE
