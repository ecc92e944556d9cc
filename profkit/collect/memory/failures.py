"""Requests for memory that find no room: which line asked for how much, and what was held at that moment.

PyTorch's GPU allocator reports each one while everything is still held, whether the program recovers or not. For the
host's memory there is only the exception that ends the program.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType

import msgspec
import torch

from profkit.collect.memory.allocator import CudaAllocator, OnFailure
from profkit.collect.memory.snapshots import save_snapshot
from profkit.collect.program.frames import line_of, walk_up
from profkit.collect.program.guard import describe, uncompiled
from profkit.run.directory import CallSite, OutOfMemory
from profkit.source.code import function_name, source_line

_MOST_SNAPSHOTS = 4
"""A program that searches for its largest batch fails repeatedly, and each snapshot takes time."""
_HOST = -1
_ASKED = re.compile(r"tried to allocate (\d+) bytes|Tried to allocate (\d+(?:\.\d+)?) (bytes|[KMGT]iB)", re.IGNORECASE)
"""The messages of PyTorch's allocators for the host (``alloc_cpu.cpp``) and GPUs (``CUDACachingAllocator.cpp``)."""
_UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_ON_HOST = re.compile(r"DefaultCPUAllocator|not enough memory|alloc_cpu\.cpp")
_MOST_CAUSES = 8
"""Errors may name each other as causes in a circle."""


class _Observer:
    """PyTorch calls it for the rest of the process; it passes calls on to one listener, if there is one. An error in
    here would replace the program's own."""

    def __init__(self) -> None:
        self._listener: OnFailure | None = None
        self._is_attached = False

    def attach(self, allocator: CudaAllocator, listener: OnFailure) -> None:
        if not self._is_attached:
            allocator.attach(self)
            self._is_attached = True
        self._listener = listener

    def detach(self) -> None:
        self._listener = None

    @uncompiled
    def __call__(self, device: int, asked_bytes: int, total_bytes: int, free_bytes: int) -> None:
        if self._listener is not None:
            self._listener(device, asked_bytes, total_bytes, free_bytes)


OBSERVER = _Observer()
"""One per process, because PyTorch cannot detach it."""


class FailureWatch:
    """From `begin` to `end` it notes each failure on a GPU, and saves a snapshot in ``directory``."""

    def __init__(self, allocator: CudaAllocator, directory: Path, is_user: Mapping[str, bool]) -> None:
        self.notes: list[str] = []
        self._allocator, self._directory, self._is_user = allocator, directory, is_user
        self._observer = OBSERVER
        self._last: OutOfMemory | None = None
        self._count = 0
        self._is_on = False

    def begin(self, cuda_starts: bool = False) -> None:
        """Start watching, if the program uses CUDA or is initialising it. Further calls do nothing."""
        if self._is_on or self.notes or not (cuda_starts or self._allocator.is_used):
            return
        try:
            self._observer.attach(self._allocator, self.note)
            self._is_on = True
        except Exception as error:  # the call is private
            self.notes.append(f"requests that find no room in the GPU's memory were not watched: {describe(error)}")

    def end(self) -> None:
        if self._is_on:
            self._is_on = False
            self._observer.detach()

    def note(self, device: int, asked_bytes: int, total_bytes: int, free_bytes: int) -> None:
        """PyTorch's allocator found no room for a request of this thread."""
        try:
            self._count += 1
            site = _asking_line(sys._getframe(), self._is_user)
            self._last = OutOfMemory(device, asked_bytes, free_bytes, total_bytes, site)
            if self._count <= _MOST_SNAPSHOTS:
                save_snapshot(self._directory, self._allocator.snapshot())
        except Exception as error:  # it would replace the program's own
            self.notes.append(f"no snapshot of the GPU's memory was taken when it ran out: {describe(error)}")

    def conclude(self, error: BaseException | None) -> OutOfMemory | None:
        """The request that ended the program with ``error``, else the last one that found no room. Only the exception
        knows the line if a backward pass asked, because its thread has no Python frames."""
        failure = next((one for one in _causes(error) if is_out_of_memory(one)), None)
        if failure is None:
            return self._last and msgspec.structs.replace(self._last, count=self._count)
        raised = _read(failure, self._is_user)
        if raised.device == _HOST:
            return raised
        known = self._last or raised
        return msgspec.structs.replace(
            known, site=known.site or raised.site, message=raised.message, ended=True, count=max(self._count, 1)
        )


def is_out_of_memory(error: BaseException) -> bool:
    kind = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
    if isinstance(error, (MemoryError, kind)):
        return True
    return isinstance(error, RuntimeError) and _ON_HOST.search(str(error)) is not None and _asked(str(error)) > 0


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, and those that it was raised from or during."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _read(error: BaseException, is_user: Mapping[str, bool]) -> OutOfMemory:
    on_host = isinstance(error, MemoryError) or _ON_HOST.search(str(error)) is not None
    return OutOfMemory(
        device=_HOST if on_host else 0,
        asked_bytes=_asked(str(error)),
        site=_raising_line(error.__traceback__, is_user),
        message=describe(error),
        ended=True,
    )


def _asked(message: str) -> int:
    match = _ASKED.search(message)
    if match is None:
        return 0
    exact, number, unit = match.groups()
    return int(exact) if exact else round(float(number) * _UNITS[unit.lower()])


def _asking_line(frame: FrameType | None, is_user: Mapping[str, bool]) -> CallSite | None:
    """The innermost running line of the program."""
    frames = (one for one in walk_up(frame) if is_user[one.f_code.co_filename])
    return next((_site(one, line_of(one)) for one in frames), None)


def _raising_line(trace: TracebackType | None, is_user: Mapping[str, bool]) -> CallSite | None:
    """The innermost line of the program in the exception's traceback."""
    found = None
    while trace is not None:
        if is_user[trace.tb_frame.f_code.co_filename]:
            found = _site(trace.tb_frame, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _site(frame: FrameType, line: int) -> CallSite:
    code = frame.f_code
    return CallSite(code.co_filename, line, function_name(code), source_line(code.co_filename, line))
