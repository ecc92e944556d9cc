"""Reading the traces of many ranks on this machine, with as many processes as its processors and memory allow.

The processes are forks where that is safe. A process with threads, such as a notebook or one that has imported torch,
starts new interpreters instead; each of them has to import the readers first.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.core.errors import ProfkitError
from profkit.core.forks import Fork, processes_at_hand
from profkit.diagnosis.launch.finding import file_of
from profkit.diagnosis.launch.remote import path_of
from profkit.diagnosis.launch.schedule import NUMBER_BYTES, Done, do_at, take_turns
from profkit.diagnosis.launch.started import Started, can_start
from profkit.trace.limits import memory_limit

_MOST_PLACES = 16_000
"""As many numbers as fit into a pipe: 64 kB on Linux."""
_WORTH_BYTES = 32 << 20
"""An interpreter takes half a second to start and to import the readers. They read this much in that time."""
_PACKED = 10
"""A compressed trace is about this many times as large as its file."""
_CGROUP = Path("/sys/fs/cgroup")
Value = TypeVar("Value")


def reduce_here(work: Callable[[str], Value], places: Sequence[str]) -> Iterator[Done[Value]]:
    """Do the work at each place, and yield the results as they come.

    Each process holds one trace at a time, so at most the reader's memory limit, and then takes the next. If a process
    is killed over a trace, perhaps for its memory, only that trace is lost. If no other process can be had, or none is
    worth starting, this one does everything.
    """
    count = min(processes_for(memory_limit()), len(places))
    if not can_fork():
        count = min(count, _worth_starting(places))
    left = set(range(len(places)))
    if count > 1 and len(places) <= _MOST_PLACES:
        for done in _share(work, places, count):
            left.discard(done.number)
            yield done
    yield from (do_at(work, number, places[number]) for number in sorted(left))


def processes_for(limit_bytes: int) -> int:
    """How many processes may each hold a trace of this size: one per available processor, limited by free memory; 1 if
    no other process can be had."""
    if not can_fork() and not can_start():
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), free_memory() // limit_bytes))


def can_fork() -> bool:
    """Whether this process can be forked safely and there is a processor for another."""
    return processes_at_hand() > 1


def _worth_starting(places: Sequence[str]) -> int:
    """How many interpreters would have enough to read to be worth starting. Files elsewhere always are: fetching them
    takes long enough."""
    paths = [path_of(place) for place in places]
    if any(path is None for path in paths):
        return len(places)
    return sum(_size_of(path) for path in paths if path is not None) // _WORTH_BYTES


def _size_of(recording: Path) -> int:
    """The bytes of its trace when unpacked, 0 without one."""
    with suppress(OSError, ProfkitError):
        trace = file_of(recording)
        return 0 if trace is None else trace.stat().st_size * (_PACKED if trace.suffix in (".gz", ".zst") else 1)
    return 0


def free_memory(cgroup: Path = _CGROUP) -> int:
    """The bytes that this process and its children may still use, on the machine or in its container, whichever has
    less."""
    free = [int(psutil.virtual_memory().available)]
    with suppress(OSError, ValueError):  # "max" means no limit
        free.append(int((cgroup / "memory.max").read_text()) - int((cgroup / "memory.current").read_text()))
    return max(0, min(free))


def _share(work: Callable[[str], Value], places: Sequence[str], count: int) -> Iterator[Done[Value]]:
    """Share the places among this many processes. One that dies is replaced."""
    numbers = _numbers_in_a_pipe(len(places))
    begin: Callable[[], Fork | Started] = partial(Started, numbers, work, places)
    if can_fork():
        begin = partial(Fork, partial(take_turns, numbers=numbers, work=work, places=places))
    at_work: dict[Fork | Started, int | None] = {}
    try:
        for _ in range(count):
            with suppress(OSError):  # fewer processes take longer
                at_work[begin()] = None
        while at_work:
            ready, _, _ = select.select([fork.channel for fork in at_work], [], [])
            fork = next(fork for fork in at_work if fork.channel in ready)
            said = _hear(fork)
            if isinstance(said, Done):
                yield said
            if said is not None:
                at_work[fork] = said if isinstance(said, int) else None
                continue
            fork.end()
            lost = at_work.pop(fork)
            if lost is not None:
                with suppress(OSError):
                    at_work[begin()] = None
                yield Done(lost, cause=f"{places[lost]}: the process that read it was ended, perhaps by the system")
    finally:
        os.close(numbers)
        for fork in at_work:
            fork.end()


def _numbers_in_a_pipe(count: int) -> int:
    """The reading end of a pipe with the numbers below ``count``. Each free process takes the next."""
    numbers, source = os.pipe()
    os.write(source, b"".join(number.to_bytes(NUMBER_BYTES, "little") for number in range(count)))
    os.close(source)
    return numbers


def _hear(fork: Fork | Started) -> Any:
    """The number of the place that the process begins, or the result; None once the process has ended."""
    try:
        return fork.channel.receive()
    except EOFError:
        return None
