"""How busy the program and its child processes are; the children are not recorded."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil  # type: ignore[import-untyped]  # its types are a package of their own


class ProcessorTime:
    """CPU time of this process and of the processes that it started, since this object was made."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._first_ns = _own_ns(), _childrens_ns()

    def measure(self) -> tuple[int, int]:
        """Nanoseconds of this process, and of its children, ended or not; zeros in a fork."""
        if os.getpid() != self._process:
            return 0, 0
        own_ns, childrens_ns = self._first_ns
        return max(0, _own_ns() - own_ns), max(0, _childrens_ns() - childrens_ns)


def _own_ns() -> int:
    times = os.times()
    return int((times.user + times.system) * 1e9)


def _childrens_ns() -> int:
    """The time of children that were waited for, with their own children, and of those that still run."""
    times = os.times()
    seconds = times.children_user + times.children_system
    with suppress(psutil.Error, OSError):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):  # it has just ended
                used = child.cpu_times()
                seconds += used.user + used.system
    return int(seconds * 1e9)
