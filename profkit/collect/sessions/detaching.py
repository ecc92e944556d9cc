"""Detaching CUPTI, NVIDIA's library that records a GPU's activity, after a recording.

Kineto leaves it attached, which slows every later launch: a launch-heavy step took a fifth longer on an H100. With
``TEARDOWN_CUPTI=1`` in the environment Kineto detaches it when a session stops: its own thread prepares that, and the
end of the next CUDA runtime call does it (``CuptiActivityApi::teardownContext``). With the variable set the next
session attaches it again. The variable is set only around start and stop, because the program's processes must not
inherit it. The call that detaches is made here, because a session that began before it would lose its kernels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from profkit.collect.program.clocks import time

_VARIABLE = "TEARDOWN_CUPTI"
_SINCE = (12, 6)
"""The first CUDA release whose graphs survive the detaching (PyTorch 146604, 150957); any program may use graphs."""
_CALLS, _BETWEEN_S = 5, 0.02
"""Kineto's thread takes milliseconds before and after the call, and nothing signals that it is done."""
STAYS_ATTACHED = (
    "the profiler stays attached after the recording and slows down later steps: "
    "profkit detaches it from CUDA 12.6 on, unless TEARDOWN_CUPTI is set"
)


@contextmanager
def detachable() -> Iterator[None]:
    """Wraps the start and the stop of a recording with CUDA. A value set by the program or its user stays."""
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
    """Let Kineto detach CUPTI: after a stop, inside `detachable`."""
    if os.environ.get(_VARIABLE) == "1" and torch.version.cuda:
        for _ in range(_CALLS):
            time.sleep(_BETWEEN_S)
            with suppress(RuntimeError):  # the program itself shall hear of its kernels' errors
                torch.cuda.current_stream().query()


def stays_attached() -> bool:
    """Whether a recording of CUDA leaves CUPTI in the program."""
    return torch.version.cuda is not None and os.environ.get(_VARIABLE, "1" if _can_detach() else "0") != "1"


def _can_detach() -> bool:
    version = (torch.version.cuda or "").split(".")[:2]
    return len(version) == len(_SINCE) and tuple(int(part) for part in version) >= _SINCE
