"""Undoing the side effects of PyTorch's profiler on the process.

All of this reaches into PyTorch's libraries. If a version lacks what is needed, the program behaves as under
``torch.profiler`` itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch

_LOG_LEVEL = "KINETO_LOG_LEVEL"
_ERRORS = 2
"""The level of errors in PyTorch's C++ log; warnings have 1."""


@contextmanager
def quiet_log() -> Iterator[None]:
    """Keeps Kineto silent. It reads its log level once, at the first start, and by default writes to stderr."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "6"  # above all levels
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


class QuietAllocator:
    """Stops the allocator from warning on the program's stderr when it frees blocks older than the recording.

    It warns through PyTorch's C++ log. No Python call can change the log's threshold after the import, so it is set in
    the library itself, and restored afterwards.
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


@cache
def let_forked_children_exit() -> None:
    """From the first recording on, children made by ``os.fork`` skip the destructors of PyTorch's libraries at exit.

    One of those destructors waits for a thread that Kineto starts with its first recording and never ends. The child
    does not have that thread and would wait for ever, as it does after any use of ``torch.profiler``.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_exit_before_destructors)


def _exit_before_destructors() -> None:
    """Flush the streams, then exit with the given status. The C library runs first what was registered last."""
    with suppress(OSError, AttributeError):  # without `on_exit` in the C library nothing changes
        library = ctypes.CDLL(None)
        library.on_exit(library._exit, None)
        library.__cxa_atexit(library.fflush, None, None)


def _library(name: str) -> ctypes.CDLL:
    file = {"darwin": f"lib{name}.dylib", "win32": f"{name}.dll"}.get(sys.platform, f"lib{name}.so")
    return ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", file))
