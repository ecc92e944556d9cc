"""PyTorch's compiler is a module that imports itself when somebody asks whether it is there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

_INDUCTOR = "_inductor"
_PACKAGE = f"torch.{_INDUCTOR}"
_THREADS = "profkit-"
"""Prefix of the names of profkit's own threads."""


@contextmanager
def without_inductor() -> Iterator[None]:
    """Keeps what runs inside from importing ``torch._inductor`` if the program has not.

    ``torch.profiler`` looks up a setting there, and a snapshot of the GPU's memory looks for the lines of compiled code
    (``torch/csrc/profiler/python/combined_traceback.cpp``). A program can only have either after importing it itself.
    The import takes 800 modules, 80 MB and a second or two, 4.3 s on a machine with an H200. The set of modules that
    are imported on demand is private. Another thread might use it meanwhile, so nothing is changed when there are
    several threads. While this thread imports it, it is there in part, and the setting may not be.
    """
    lazy = getattr(torch, "_lazy_modules", None)
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith(_THREADS)]
    is_there = _PACKAGE in sys.modules and not inductor_is_being_imported()
    is_free = isinstance(lazy, set) and _INDUCTOR in lazy and not is_there
    if lazy is None or not is_free or len(threads) > 1:
        yield
        return
    lazy.discard(_INDUCTOR)
    try:
        yield
    finally:
        lazy.add(_INDUCTOR)


def inductor_is_being_imported() -> bool:
    """Whether this thread runs in the midst of the import: making the first optimizer imports the compiler, for
    seconds, and a pending call or the collector of garbage may run there."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False
