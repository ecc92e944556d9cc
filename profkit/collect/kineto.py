"""What PyTorch's profiler does to a process besides recording it, undone as far as it can be.

All of this reaches into PyTorch's libraries. Where a version has not got what is reached for, it stays undone: the
program then behaves as under ``torch.profiler`` itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

_LOG_LEVEL = "KINETO_LOG_LEVEL"
_ERRORS = 2
"""The level of errors in PyTorch's C++ log; that of warnings is 1."""


@contextmanager
def quiet_log() -> Iterator[None]:
    """Kineto reads its log level once, at the first start, and by default writes lines of its own to stderr."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "6"  # above every level there is
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


class QuietAllocator:
    """Keeps the allocator from writing to the program's stderr that it frees blocks older than the recording.

    It does so through PyTorch's C++ log, at the level of warnings, whose threshold no Python call can set after the
    import: it is set in the library itself, and set back.
    """

    def __init__(self) -> None:
        self._level: ctypes.c_int | None = None
        self._before = 0

    def begin(self) -> None:
        with suppress(OSError, ValueError):
            self._level = ctypes.c_int.in_dll(_library("c10"), "FLAGS_caffe2_log_level")
            self._before = self._level.value
            self._level.value = max(self._before, _ERRORS)

    def end(self) -> None:
        if self._level is not None:
            self._level.value = self._before
            self._level = None


def _library(name: str) -> ctypes.CDLL:
    file = {"darwin": f"lib{name}.dylib", "win32": f"{name}.dll"}.get(sys.platform, f"lib{name}.so")
    return ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", file))
