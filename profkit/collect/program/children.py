"""How busy the program and its child processes are; the children are not recorded."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil  # type: ignore[import-untyped]  # its types are a package of their own


class ProcessorTime:
    """CPU time of this process and of the processes that it started, since this object was made."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._first_ns = _read_ns()

    def measure(self) -> tuple[int, int]:
        """Nanoseconds of this process, and of its children, ended or not; zeros in a fork."""
        if os.getpid() != self._process:
            return 0, 0
        own_ns, childrens_ns = (max(0, now - first) for now, first in zip(_read_ns(), self._first_ns, strict=True))
        return own_ns, childrens_ns


def _read_ns() -> tuple[int, int]:
    """The time of this process, and of its children: those that were waited for, with theirs, and those that run."""
    times = os.times()
    seconds = times.children_user + times.children_system
    with suppress(psutil.Error, OSError):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):  # it has just ended
                used = child.cpu_times()
                seconds += used.user + used.system
    return int((times.user + times.system) * 1e9), int(seconds * 1e9)
