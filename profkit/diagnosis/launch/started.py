"""A new interpreter that works through places, for a process that cannot be forked because it has threads.

An interpreter started by multiprocessing imports the program's main file again and runs whatever is not behind ``if
__name__``. This one imports only profkit, from where this process found it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from profkit.core.forks import PROCESSES, Channel
from profkit.diagnosis.launch.schedule import take_turns

_SERVE = (
    "import sys; sys.path[:] = sys.argv[4:]; from profkit.diagnosis.launch.started import serve; serve(*sys.argv[1:4])"
)


def can_start() -> bool:
    """Whether another interpreter can be started and there is a processor for it. A program that embeds Python may give
    itself as ``sys.executable``."""
    name = PurePath(sys.executable or "").name.lower()
    if sys.platform != "linux" or "python" not in name or getattr(sys, "frozen", False):
        return False
    return os.environ.get(PROCESSES) != "1" and len(os.sched_getaffinity(0)) > 1


class Started:
    """A new interpreter that takes turns at the places, and ends with this process. Raises `OSError` if it cannot be
    started.

    It must be able to import the module of ``work``.
    """

    def __init__(self, numbers: int, work: Callable[[str], Any], places: Sequence[str]) -> None:
        ends: list[int] = []
        try:
            ends += [*os.pipe(), *os.pipe()]
            requests, asking, answers, answering = ends
            handed = (numbers, requests, answering)
            paths = [entry for entry in sys.path if isinstance(entry, str)]
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, with code of profkit's
                [sys.executable, "-c", _SERVE, *map(str, handed), *paths],
                pass_fds=handed,
                stdin=subprocess.DEVNULL,
            )
        except OSError:
            for end in ends:
                os.close(end)
            raise
        os.close(requests)
        os.close(answering)
        self.channel = Channel(answers, asking)
        with suppress(OSError):  # it has already ended, as the reader of the channel will notice
            self.channel.send((work, list(places)))

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        self.channel.close()
        self._process.kill()
        self._process.wait()


def serve(numbers: str, requests: str, answers: str) -> None:
    """What the started interpreter runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    channel = Channel(int(requests), int(answers))
    with suppress(EOFError, BrokenPipeError):  # the first process is gone
        work, places = channel.receive()
        take_turns(channel, int(numbers), work, places)
