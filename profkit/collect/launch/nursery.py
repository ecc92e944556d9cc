"""A process that has imported PyTorch, and forks others that begin with it: an import takes seconds on some machines.

``python -m profkit.collect.launch.nursery FD`` serves a Unix socket. Each message is a JSON object with ``module`` and
``arguments``, and comes with four file descriptors: stdin, stdout and stderr of the new process, and one for what
becomes of it, as lines: its number, and when it has ended its exit status, negative for a signal. The new process runs
the module as ``python -m`` does, in a process group of its own.

CUDA does not survive a fork, so nothing here may use a device. Nor may a thread be alive. This is part of profkit, and
not of its tests, so that no frame above a recorded scenario counts as the user's.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

_MOST_BYTES = 1 << 16
"""Of a message: a module and its arguments, which are mostly paths."""
_DESCRIPTORS = 4
"""Three streams, and where it is told what becomes of the process."""


class _Wanted(NamedTuple):
    """A process to be: a module, its arguments, and its stdin, stdout and stderr."""

    module: str
    arguments: list[str]
    streams: list[int]


def main(descriptor: str) -> None:
    """Serve until the other end closes. In a new process, run its module."""
    connection = socket.socket(fileno=int(descriptor))
    _import_early()
    wanted = _serve(connection)
    if wanted is not None:
        connection.close()
        _begin_with(wanted)
        runpy.run_module(wanted.module, run_name="__main__", alter_sys=True)


def _import_early() -> None:
    """What the modules import that it is meant for. They themselves are not, as each runs once, as ``__main__``."""
    import numpy as np
    import torch

    from profkit.collect.loaders import account
    from profkit.collect.recorder import profiler

    assert all((np, torch, account, profiler))


def _serve(connection: socket.socket) -> _Wanted | None:
    """Fork at each message. None once there are no more; in a new process what it shall be."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, _DESCRIPTORS)
        if not message:
            return None
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = json.loads(message)
        if _is_new_process(descriptors):
            return _Wanted(request["module"], request["arguments"], descriptors[:-1])


def _is_new_process(descriptors: list[int]) -> bool:
    """Fork again: one process begins, which is told by True, and one waits for it, tells how it ended, and ends."""
    *streams, told = descriptors
    child = os.fork()
    with suppress(OSError):  # whoever comes first: a signal to the group must reach it from the beginning
        os.setpgid(child, child)
    if not child:
        os.close(told)
        return True
    for stream in streams:
        os.close(stream)
    os.write(told, f"{child}\n".encode())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(told, f"{status}\n".encode())
    os._exit(0)


def _begin_with(wanted: _Wanted) -> None:
    """Streams and a command line of its own."""
    for number, descriptor in enumerate(wanted.streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = [wanted.module, *wanted.arguments]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [sys.executable, "-m", wanted.module, *wanted.arguments]


if __name__ == "__main__":
    main(sys.argv[1])
