"""The program's side: it asks its parent process for samples of its stacks, by a small file in the run directory.

Where no measured step could be afforded, it asks when the plain steps begin: a step whose lines are marked says little
about the time of its Python, and such a step is all that the recording of a dear one holds.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from profkit.collect.boundaries.schedule import Phase, Schedule
from profkit.collect.program.clocks import time
from profkit.core.errors import UnreadableInput
from profkit.run.directory import load_file, save

REQUEST_FILE = "stacks.request.json"
_ENOUGH_NS = 5_000_000_000
"""Of plain steps: 400 samples on a machine with two CPUs, 1,000 on larger ones."""
_PR_SET_PTRACER = 0x59616D61
"""From ``linux/prctl.h``: names the process that may read this one's memory, with its children."""
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_ONLY_ANCESTORS = "1"


class StackRequest(Struct, frozen=True):
    """``begun_ns`` is when the recording's measured steps began, or the plain ones if it has none; it tells one request
    from the next. ``thread`` of ``process`` is the recorded one. The plain steps began at ``plain_ns``. Once the
    request ``is_over``, that many whole ``steps`` lie between ``from_ns`` and ``to_ns``; they are the measured ones if
    they ``were_recorded``."""

    process: int
    thread: int
    begun_ns: int
    has_workers: bool = False
    plain_ns: int = 0
    is_over: bool = False
    were_recorded: bool = False
    steps: int = 0
    from_ns: int = 0
    to_ns: int = 0


class StackRequests:
    """Asks for samples while the measured steps, if any, and those after them run, if the parent process ``is_asked``.

    `enter` is called when a step begins, `look` now and then on another thread, `end` when the recording is over.
    """

    def __init__(self, directory: Path, is_asked: bool, schedule: Schedule, has_workers: Callable[[], bool]) -> None:
        self._directory, self._is_asked, self._schedule = directory, is_asked, schedule
        self._has_workers = has_workers
        self._request: StackRequest | None = None
        self._process = os.getpid()

    def enter(self) -> None:
        phase = self._schedule.phase
        if not self._is_asked or (self._request is not None and self._request.is_over):
            return
        if self._request is None and phase in (Phase.ACTIVE, Phase.AFTER):
            _let_parent_read()
            thread, now_ns = threading.get_ident(), time.perf_counter_ns()
            plain_ns = now_ns if phase is Phase.AFTER else 0
            self._write(StackRequest(self._process, thread, now_ns, self._has_workers(), plain_ns))
        elif self._request is not None and not self._request.plain_ns and phase is Phase.AFTER:
            self._write(replace(self._request, plain_ns=time.perf_counter_ns()))

    def look(self) -> None:
        """End the request once there are samples enough of whole steps."""
        request = self._request
        if request is None or request.is_over or not request.plain_ns or not self._schedule.timed:
            return
        if time.perf_counter_ns() - request.plain_ns >= _ENOUGH_NS:
            self.end()

    def end(self) -> None:
        request, schedule = self._request, self._schedule
        if request is None or request.is_over or os.getpid() != self._process:
            return
        plain_ns = schedule.after_ns
        if request.plain_ns and plain_ns:
            to_ns = request.plain_ns + sum(plain_ns)
            over = replace(request, steps=len(plain_ns), from_ns=request.plain_ns, to_ns=to_ns)
        else:
            recorded_ns = list(schedule.measured_step_ns)
            to_ns = request.begun_ns + sum(recorded_ns)
            over = replace(request, steps=len(recorded_ns), from_ns=request.begun_ns, to_ns=to_ns, were_recorded=True)
        self._write(replace(over, is_over=True))

    def _write(self, request: StackRequest) -> None:
        self._request = request
        with suppress(OSError):  # the directory is gone, or full: then there are no samples
            save(self._directory, REQUEST_FILE, request)


def read_request(directory: Path) -> StackRequest | None:
    """The latest request in a run directory, None if there is none."""
    with suppress(OSError, UnreadableInput):
        return load_file(directory, REQUEST_FILE, StackRequest, None)
    return None


def _let_parent_read() -> None:
    """Where Linux lets only ancestors read a process, also allow it to the parent's other children."""
    with suppress(OSError, AttributeError):
        if sys.platform == "linux" and _YAMA.read_text(encoding="ascii").strip() == _ONLY_ANCESTORS:
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, os.getppid(), 0, 0, 0)
