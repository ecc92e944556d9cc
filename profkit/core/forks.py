"""Another process that works for this one: a fork, and a pipe each way.

A fork begins within milliseconds and knows everything this process knew. The standard library's multiprocessing does
the same, and takes a tenth as long to import as a trace of 50 MB takes to diagnose.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NoReturn

PROCESSES = "PROFKIT_PROCESSES"
"""The environment variable that limits how many processes work on one trace; 1 means no forks."""
_MOST_PROCESSES = 4
"""A reader unpacks about four times as fast as one process decodes."""
_SIZE_BYTES = 8
"""No value that fits into memory is longer than 64 bits can say."""
_BLOCK_BYTES = 1 << 20
"""Bytes to read at once; each read reserves that much."""


def processes_at_hand() -> int:
    """How many processes may work: one per available processor, if this process can be forked safely.

    A process with threads cannot: the fork would have their locks, but not the threads that release them.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return 1
    try:
        if len(os.listdir("/proc/self/task")) > 1:
            return 1
        allowed = int(os.environ.get(PROCESSES, _MOST_PROCESSES))
        return max(1, min(allowed, _MOST_PROCESSES, len(os.sched_getaffinity(0))))
    except (OSError, ValueError):
        return 1


class Channel:
    """One end of a connection between two processes, which carries whole values in order.

    Values are pickled. That is safe: the pipe has no name, so only this program can have written what is read.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target

    def send(self, value: Any) -> None:
        """Raises `OSError` if the other process is gone."""
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        left = memoryview(len(data).to_bytes(_SIZE_BYTES, "little") + data)
        while left:
            left = left[os.write(self._target, left) :]

    def receive(self) -> Any:
        """Wait for the next value. Raises `EOFError` if the other process is gone."""
        size = int.from_bytes(self._read(_SIZE_BYTES), "little")
        return pickle.loads(self._read(size))  # noqa: S301  # written by this program, as above

    def fileno(self) -> int:
        """What `select` waits for."""
        return self._source

    def has_more(self) -> bool:
        """Whether `receive` would return at once."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        os.close(self._source)
        os.close(self._target)

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self._source, min(size, _BLOCK_BYTES))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Fork:
    """A process that does the ``work``, given its end of the channel, and ends. Raises `OSError` if it cannot be made.

    It runs none of this process's exit handlers and flushes none of its buffers.
    """

    _open: ClassVar[set[Channel]] = set()
    """This process's ends. A later fork closes its copies, or earlier forks would never notice that this process is
    gone."""

    def __init__(self, work: Callable[[Channel], None]) -> None:
        ends: list[int] = []
        try:
            ends += [*os.pipe(), *os.pipe()]
            self._pid = os.fork()
        except OSError:
            for end in ends:
                os.close(end)
            raise
        requests, asking, answers, answering = ends
        own, theirs = Channel(answers, asking), Channel(requests, answering)
        if not self._pid:
            self._run(work, own, theirs)
        theirs.close()
        self._open.add(own)
        self.channel = own

    def _run(self, work: Callable[[Channel], None], own: Channel, theirs: Channel) -> NoReturn:
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this one
            for channel in (own, *self._open):
                channel.close()
            work(theirs)
            status = 0
        finally:
            os._exit(status)

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        self._open.discard(self.channel)
        self.channel.close()
        with suppress(ProcessLookupError, ChildProcessError):  # somebody else waited for it
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def share_out(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of the tasks (256 at most), in order.

    Two processes work through them if possible, from last to first: each takes the next task from a pipe. Results must
    be picklable. If the other process dies, its tasks are done here.
    """
    done: dict[int, Any] = {}
    if processes_at_hand() > 1:
        with suppress(OSError):  # no processes or pipes to be had: this one does everything
            done = _work_with_another(tasks)
    return [done[number] if number in done else task() for number, task in enumerate(tasks)]


def _work_with_another(tasks: Sequence[Callable[[], Any]]) -> dict[int, Any]:
    """The results of the tasks that got done, by number."""
    numbers, source = os.pipe()
    os.write(source, bytes(reversed(range(len(tasks)))))
    os.close(source)
    try:
        other = Fork(lambda channel: channel.send(_work(tasks, numbers)))
        try:
            done = _work(tasks, numbers)
            with suppress(EOFError, OSError):
                done |= other.channel.receive()
        finally:
            other.end()
    finally:
        os.close(numbers)
    return done


def _work(tasks: Sequence[Callable[[], Any]], numbers: int) -> dict[int, Any]:
    done = {}
    while taken := os.read(numbers, 1):
        done[taken[0]] = tasks[taken[0]]()
    return done
