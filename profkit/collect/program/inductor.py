"""PyTorch's compiler is a module that imports itself when somebody asks whether it is there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_INDUCTOR = "_inductor"
_THREADS = "profkit-"
"""Prefix of the names of profkit's own threads."""


@contextmanager
def without_inductor() -> Iterator[None]:
    """Keeps what runs inside from importing ``torch._inductor`` if the program has not.

    ``torch.profiler`` looks up a setting there, and a snapshot of the GPU's memory looks for the lines of compiled code
    (``torch/csrc/profiler/python/combined_traceback.cpp``). A program can only have either after importing it itself.
    The import takes 800 modules, 80 MB and a second or two, 4.3 s on a machine with an H200. The set of modules that
    are imported on demand is private. Another thread might use it meanwhile, so nothing is changed when there are
    several threads.
    """
    lazy = getattr(torch, "_lazy_modules", None)
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith(_THREADS)]
    is_free = isinstance(lazy, set) and _INDUCTOR in lazy and f"torch.{_INDUCTOR}" not in sys.modules
    if lazy is None or not is_free or len(threads) > 1:
        yield
        return
    lazy.discard(_INDUCTOR)
    try:
        yield
    finally:
        lazy.add(_INDUCTOR)
